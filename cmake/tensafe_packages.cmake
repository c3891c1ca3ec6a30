# Packages for the Debian that they are built on, by cpack: scripts/packages, which also writes their manual pages. A component
# of the install rules is a package.
execute_process(COMMAND git log -1 "--format=%an <%ae>;%cD" WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}"
    OUTPUT_VARIABLE commit OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
list(GET commit 0 CPACK_DEBIAN_PACKAGE_MAINTAINER)
list(GET commit 1 date)
cmake_host_system_information(RESULT system QUERY DISTRIB_ID DISTRIB_VERSION_ID)
list(JOIN system "" system)
set(CPACK_DEBIAN_PACKAGE_RELEASE "1~${system}")

set(package_files "${PROJECT_BINARY_DIR}/package_files")
configure_file(CHANGELOG.md "${package_files}/changelog" COPYONLY)
file(WRITE "${package_files}/changelog.Debian" "tensafe (${PROJECT_VERSION}-${CPACK_DEBIAN_PACKAGE_RELEASE}) unstable; urgency=medium

  * Version ${PROJECT_VERSION}: see changelog.gz.

 -- ${CPACK_DEBIAN_PACKAGE_MAINTAINER}  ${date}\n")
execute_process(COMMAND gzip -9nf "${package_files}/changelog" "${package_files}/changelog.Debian" COMMAND_ERROR_IS_FATAL ANY)

macro(tensafe_package name section)
    string(TOUPPER ${name} id)
    list(APPEND CPACK_COMPONENTS_ALL ${name})
    set(CPACK_DEBIAN_${id}_PACKAGE_NAME ${name})
    set(CPACK_DEBIAN_${id}_PACKAGE_SECTION ${section})
    string(JOIN "\n" CPACK_COMPONENT_${id}_DESCRIPTION ${ARGN})
    file(GLOB CPACK_DEBIAN_${id}_PACKAGE_CONTROL_EXTRA "${PROJECT_SOURCE_DIR}/packaging/debian/${name}/*")
    install(FILES "${PROJECT_SOURCE_DIR}/packaging/debian/copyright"
        "${package_files}/changelog.gz" "${package_files}/changelog.Debian.gz"
        DESTINATION share/doc/${name} COMPONENT ${name} EXCLUDE_FROM_ALL)
    foreach(library IN LISTS compiled_into_${name})
        install(FILES "/usr/share/doc/${library}/copyright" DESTINATION share/doc/${name} RENAME copyright.${library}
            COMPONENT ${name} EXCLUDE_FROM_ALL)
    endforeach()
    foreach(program IN LISTS programs_of_${name})
        install(FILES "${PROJECT_BINARY_DIR}/manual/${program}.1.gz" DESTINATION share/man/man1 COMPONENT ${name} EXCLUDE_FROM_ALL)
    endforeach()
endmacro()
set(programs_of_tensafe-tools tensafe-server tensafe-client tensafe-admin sign_adapter)
set(programs_of_python3-tensafe tensafe)
set(compiled_into_libtensafe-dev nlohmann-json3-dev)
set(compiled_into_tensafe-tools nlohmann-json3-dev libcli11-dev libboost-dev)
set(compiled_into_python3-tensafe nlohmann-json3-dev pybind11-dev libboost-dev)

tensafe_package(libtensafe-dev libdevel "CKKS, NTT and encrypted LoRA in C++20: headers and library"
    "A server applies a LoRA adapter to hidden states that it sees only encrypted."
    "The headers need nothing else; linking tensafe::compiled shortens compile times.")
set(CPACK_DEBIAN_LIBTENSAFE-DEV_PACKAGE_RECOMMENDS "nlohmann-json3-dev, libssl-dev")
set(CPACK_DEBIAN_LIBTENSAFE-DEV_PACKAGE_SUGGESTS "tensafe-doc, libeigen3-dev, libtbb-dev")

tensafe_package(tensafe-tools net "server and client of encrypted LoRA"
    "tensafe-server applies LoRA adapters to hidden states that it sees only"
    "encrypted, tensafe-client asks it, tensafe-admin administers it, and"
    "sign_adapter signs adapters.")
set(CPACK_DEBIAN_TENSAFE-TOOLS_PACKAGE_DEPENDS "python3, systemd-standalone-sysusers | systemd-sysusers")
set(CPACK_DEBIAN_TENSAFE-TOOLS_PACKAGE_RECOMMENDS procps)  # systemctl reload
set(CPACK_DEBIAN_TENSAFE-TOOLS_PACKAGE_SUGGESTS tensafe-doc)

tensafe_package(tensafe-doc doc "encrypted LoRA: documents and sources of examples"
    "Guide, security, wire format and design of TenSafe-HE, and examples.")
set(CPACK_DEBIAN_TENSAFE-DOC_PACKAGE_ARCHITECTURE all)
set(CPACK_DEBIAN_TENSAFE-DOC_PACKAGE_RECOMMENDS libtensafe-dev)  # documents link to its headers
execute_process(COMMAND git -c core.quotePath=off ls-files -- *.md docs examples service studies packaging python/tensafe web/client
        web/demo ":!docs/site" ":!*.typed"
    WORKING_DIRECTORY "${PROJECT_SOURCE_DIR}" OUTPUT_VARIABLE files OUTPUT_STRIP_TRAILING_WHITESPACE COMMAND_ERROR_IS_FATAL ANY)
string(REPLACE "\n" ";" files "${files}")
foreach(file IN LISTS files)
    cmake_path(GET file PARENT_PATH folder)
    install(FILES ${file} DESTINATION share/doc/tensafe-doc/${folder} COMPONENT tensafe-doc EXCLUDE_FROM_ALL)
endforeach()
file(MAKE_DIRECTORY "${package_files}/include")
file(CREATE_LINK ../../../../include/tensafe "${package_files}/include/tensafe" SYMBOLIC)
file(CREATE_LINK copyright "${package_files}/LICENSE" SYMBOLIC)
install(FILES "${package_files}/include/tensafe" DESTINATION share/doc/tensafe-doc/include COMPONENT tensafe-doc EXCLUDE_FROM_ALL)
install(FILES "${package_files}/LICENSE" DESTINATION share/doc/tensafe-doc COMPONENT tensafe-doc EXCLUDE_FROM_ALL)

file(GLOB wheel "${PROJECT_BINARY_DIR}/tensafe-*.whl")
if(NOT wheel MATCHES "-cp3([0-9]+)-[^/;]*$")
    message(FATAL_ERROR "tensafe: ${PROJECT_BINARY_DIR}: got '${wheel}', expected one wheel of CPython 3")
endif()
set(minor ${CMAKE_MATCH_1})
math(EXPR next "${minor} + 1")
tensafe_package(python3-tensafe python "encrypted LoRA for numpy and torch"
    "A server applies a LoRA adapter to hidden states that it sees only encrypted."
    "Client and server in one process, and the client of tensafe-server.")
set(CPACK_DEBIAN_PYTHON3-TENSAFE_PACKAGE_DEPENDS "python3 (>= 3.${minor}), python3 (<< 3.${next}), python3-numpy")
set(CPACK_DEBIAN_PYTHON3-TENSAFE_PACKAGE_SUGGESTS "tensafe-tools, tensafe-doc, python3-torch")
file(REMOVE_RECURSE "${package_files}/python")
file(ARCHIVE_EXTRACT INPUT "${wheel}" DESTINATION "${package_files}/python")
install(DIRECTORY "${package_files}/python/" DESTINATION lib/python3/dist-packages COMPONENT python3-tensafe EXCLUDE_FROM_ALL
    PATTERN RECORD EXCLUDE)
file(WRITE "${package_files}/tensafe" "#!/usr/bin/python3\nfrom tensafe.cli import main\nraise SystemExit(main())\n")
file(CHMOD "${package_files}/tensafe" PERMISSIONS OWNER_READ OWNER_WRITE OWNER_EXECUTE)
install(PROGRAMS "${package_files}/tensafe" DESTINATION bin COMPONENT python3-tensafe EXCLUDE_FROM_ALL)

set(CPACK_GENERATOR DEB)
set(CPACK_SET_DESTDIR ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "")
include(CPack)
