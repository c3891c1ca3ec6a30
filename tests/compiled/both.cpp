// One program of both modes: a file that compiles everything itself, and one that leaves it to the library.

#include <cstdio>
#include <string>

double header_only_error();
double compiled_error();
std::string header_only_refusal();
std::string compiled_refusal();

int main() {
    const bool right = header_only_error() < 1e-3 && compiled_error() < 1e-3 && !compiled_refusal().empty() &&
                       header_only_refusal() == compiled_refusal();
    std::puts(right ? "both modes work in one program" : "the modes differ");
    return right ? 0 : 1;
}
