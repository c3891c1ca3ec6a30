#include <cstdio>
#include <exception>

#include "arithmetic.hpp"
#include "encryption.hpp"
#include "leaks.hpp"
#include "tokens.hpp"

// Runs under valgrind's memcheck, which reports what depends on a secret: see docs/testing.md.
//   constant_time            operations on secrets, none of which may be reported
//   constant_time --plant    operations that leak, all of which must be reported
int main(int count, char** arguments) {
    if (RUNNING_ON_VALGRIND == 0) {
        std::puts("constant_time: nothing is checked without valgrind: run it under memcheck");
        return 1;
    }
    try {
        const bool planted = count == 2 && std::strcmp(arguments[1], "--plant") == 0;
        tests::program program;
        if (planted) {
            tests::check_leaks(program);
        } else {
            tests::check_sampling(program);
            tests::check_arithmetic(program);
            tests::check_encryption(program);
            tests::check_tokens(program);
        }
        return program.report(planted);
    } catch (const std::exception& e) {
        std::printf("constant_time: %s\n", e.what());
        return 1;
    }
}
