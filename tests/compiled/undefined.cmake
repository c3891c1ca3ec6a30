# What a program with tensafe::compiled must not compile again: OBJECT may not define it.
execute_process(COMMAND "${NM}" -C --defined-only "${OBJECT}" OUTPUT_VARIABLE defined COMMAND_ERROR_IS_FATAL ANY)
foreach(kernel "tensafe::ntt::" "tensafe::rns::limb::" "tensafe::rns::multiply_panel" "tensafe::random::sample_"
        "tensafe::memory::detail::" "tensafe::encoding::" "::client\\(\\)$" "::server\\(" "::encrypt<" "::decrypt<"
        "safetensors" "peft" "nlohmann")
    string(REGEX MATCH "[^\n]*${kernel}[^\n]*" found "${defined}")
    if(found)
        message(SEND_ERROR "compiled again: ${found}")
    endif()
endforeach()
execute_process(COMMAND "${NM}" -C --undefined-only "${OBJECT}" OUTPUT_VARIABLE undefined COMMAND_ERROR_IS_FATAL ANY)
if(NOT undefined MATCHES "tensafe::lora::client<" OR NOT undefined MATCHES "tensafe::io::load_peft")
    message(SEND_ERROR "does not call the library")
endif()
