// Runs kernels of forms_test.py. Lines of input: a kernel, then four hexadecimal operands for each of its
// threads; of output: a result for each.

#include <cstdio>
#include <iostream>
#include <sstream>

#include "machine.hpp"

using namespace software_device;

int main() {
    device_memory memory(u64{1} << 30);
    for (std::string line; std::getline(std::cin, line);) {
        std::istringstream words(line);
        std::string name;
        words >> name >> std::hex;
        std::vector<u64> operands;
        for (u64 x = 0; words >> x;) {
            operands.push_back(x);
        }
        const u64 threads = operands.size() / 4;
        const u64 from = memory.allocate(operands.size() * 8);
        const u64 to = memory.allocate(threads * 8);
        std::memcpy(memory.at(from, operands.size() * 8, false, "operands"), operands.data(),
                    operands.size() * 8);
        memory.mark_written(from, operands.size() * 8);
        std::memset(memory.at(to, threads * 8, false, "results"), 0, threads * 8);
        memory.mark_written(to, threads * 8);
        launch what;
        what.code = registry::find(90, name);
        if (what.code == nullptr) {
            std::cerr << "no kernel " << name << "\n";
            return 1;
        }
        what.threads = static_cast<u32>(threads);
        what.shared_bytes = 32768;
        what.parameters.resize(what.code->parameter_bytes);
        std::memcpy(what.parameters.data(), &from, 8);
        std::memcpy(what.parameters.data() + 8, &to, 8);
        try {
            run(what, memory, thread_order::shuffled);
        } catch (const fault& wrong) {
            std::cout << wrong.what() << "\n";
            continue;
        }
        const u8* const results = memory.at(to, threads * 8, true, "results");
        for (u64 i = 0; i < threads; ++i) {
            u64 x = 0;
            std::memcpy(&x, results + 8 * i, 8);
            std::printf("%llx ", static_cast<unsigned long long>(x));
        }
        std::printf("\n");
        std::fflush(stdout);
    }
    return 0;
}
