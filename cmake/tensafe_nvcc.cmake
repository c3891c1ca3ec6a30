# Finds nvcc 12.4 or later as TENSAFE_NVCC, and its toolkit, as CUDAToolkit_ROOT: what is installed, or else what
# scripts/setup took from PyPI.
#   cmake -P tensafe_nvcc.cmake    prints the toolkit's folder, where there is one

function(tensafe_is_nvcc result candidate)
    execute_process(COMMAND "${candidate}" --version OUTPUT_VARIABLE version ERROR_QUIET)
    if(NOT version MATCHES "release ([0-9.]+)" OR CMAKE_MATCH_1 VERSION_LESS 12.4)
        set(${result} FALSE PARENT_SCOPE)
    endif()
endfunction()

# Installers put nvcc where no PATH points.
find_program(TENSAFE_NVCC nvcc
    HINTS ${CUDAToolkit_ROOT} ENV CUDAToolkit_ROOT ENV CUDA_PATH ENV CUDA_HOME
    PATHS /usr/local/cuda "${CMAKE_CURRENT_LIST_DIR}/../build/cuda-toolkit/nvidia/cu13"
    PATH_SUFFIXES bin
    VALIDATOR tensafe_is_nvcc)
if(TENSAFE_NVCC)
    # It may be a script that calls another one, and says so; what it is asked for is nonsense, and once it said nothing.
    execute_process(COMMAND "${TENSAFE_NVCC}" -v none OUTPUT_VARIABLE settings ERROR_VARIABLE settings)
    get_filename_component(CUDAToolkit_ROOT "${TENSAFE_NVCC}" REALPATH)
    get_filename_component(CUDAToolkit_ROOT "${CUDAToolkit_ROOT}/../.." ABSOLUTE)
    if(settings MATCHES "TOP=([^\n]+)")
        get_filename_component(CUDAToolkit_ROOT "${CMAKE_MATCH_1}" ABSOLUTE)
    endif()
    if(NOT EXISTS "${CUDAToolkit_ROOT}/include/cuda_runtime.h")
        message(WARNING "tensafe: ${TENSAFE_NVCC} does not say where its toolkit is (${settings}); "
                        "name another one with -DTENSAFE_NVCC=")
        set(TENSAFE_NVCC TENSAFE_NVCC-NOTFOUND)
        return()
    endif()
    if(CMAKE_SCRIPT_MODE_FILE)
        execute_process(COMMAND "${CMAKE_COMMAND}" -E echo "${CUDAToolkit_ROOT}")
    endif()
endif()
