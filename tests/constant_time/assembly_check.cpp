#include <fstream>
#include <iostream>

#include "assembly_follower.hpp"

// Reads what objdump -d -C --no-show-raw-insn prints of a program, and follows data through the registers of
// each function that uses AVX-512: a branch that depends on data, an address that does, and a gather are
// reported.
//   assembly_check LISTING KNOWN             nothing may be reported but what KNOWN lists
//   assembly_check --plant LISTING           each function planted_* must be reported, no function innocent_*
// What is data, and what this cannot see: docs/testing.md.

namespace {

using namespace tests::assembly;

bool uses_avx512(const function& f) {
    return std::any_of(f.code.begin(), f.code.end(), [](const instruction& i) {
        return contains(i.text, "%zmm") || contains(i.text, "%k");
    });
}

/// A line of the list: "kind | part of the function's name | reason", or "kernel | part of the name".
struct known_finding {
    string kind;
    string part;
    bool used = false;
};

string trimmed(const string& text) {
    const std::size_t first = text.find_first_not_of(' ');
    return first == string::npos ? "" : text.substr(first, text.find_last_not_of(' ') - first + 1);
}

std::vector<known_finding> read_known(std::istream& in) {
    std::vector<known_finding> result;
    string line;
    while (std::getline(in, line)) {
        const std::size_t bar = line.find('|');
        if (line.empty() || line[0] == '#' || bar == string::npos) {
            continue;
        }
        const string rest = line.substr(bar + 1);
        result.push_back({trimmed(line.substr(0, bar)), trimmed(rest.substr(0, rest.find('|'))), false});
    }
    return result;
}

int check_plants(const std::vector<function>& functions) {
    const auto no_return = functions_without_return(functions);
    int planted = 0;
    int wrong = 0;
    for (const function& f : functions) {
        const bool is_planted = contains(f.name, "planted_");
        if (!is_planted && !contains(f.name, "innocent_")) {
            continue;
        }
        planted += is_planted ? 1 : 0;
        const auto found = follower(f, no_return).run();
        for (const finding& x : found) {
            std::cout << "leak: " << x.function << ": " << x.kind << ": " << x.text << '\n';
        }
        if (found.empty() == is_planted) {
            std::cout << "wrong: " << f.name << '\n';
            ++wrong;
        }
    }
    if (planted == 0 || wrong != 0) {
        return 1;
    }
    std::cout << "found: avx512, in assembly: all " << planted << " planted leaks\n";
    return 0;
}

int check_program(const std::vector<function>& functions, std::vector<known_finding> known) {
    const auto no_return = functions_without_return(functions);
    int leaks = 0;
    std::size_t checked = 0;
    for (const function& f : functions) {
        if (!uses_avx512(f)) {
            continue;
        }
        ++checked;
        for (known_finding& k : known) {
            k.used |= k.kind == "kernel" && contains(f.name, k.part);
        }
        for (const finding& x : follower(f, no_return).run()) {
            bool is_known = false;
            for (known_finding& k : known) {
                if (k.kind == x.kind && contains(x.function, k.part)) {
                    k.used = is_known = true;
                }
            }
            if (!is_known) {
                std::cout << "leak: " << x.function << ": " << x.kind << ": " << x.text << '\n';
                ++leaks;
            }
        }
    }
    string kernels;
    int unused = 0;
    for (const known_finding& k : known) {
        if (!k.used) {
            std::cout << "unused: " << k.kind << " | " << k.part << '\n';
            ++unused;
        } else if (k.kind == "kernel") {
            kernels += (kernels.empty() ? " " : "; ") + k.part;
        }
    }
    std::cout << "covered: avx512, in assembly, " << checked << " functions, among them" << kernels << '\n';
    return leaks != 0 || unused != 0 || kernels.empty() ? 1 : 0;
}

}  // namespace

int main(int count, char** arguments) {
    const bool planted = count == 3 && string_view(arguments[1]) == "--plant";
    if (count != 3) {
        std::cout << "usage: assembly_check LISTING KNOWN, or --plant LISTING\n";
        return 2;
    }
    std::ifstream listing(arguments[planted ? 2 : 1]);
    const auto functions = read_listing(listing);
    if (functions.empty()) {
        std::cout << "assembly_check: no functions in " << arguments[planted ? 2 : 1] << '\n';
        return 2;
    }
    if (planted) {
        return check_plants(functions);
    }
    std::ifstream list(arguments[2]);
    return check_program(functions, read_known(list));
}
