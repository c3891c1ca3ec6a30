// Memory, and the loop that runs a kernel's blocks and threads.

#include "machine.hpp"

#include <algorithm>
#include <cstdlib>
#include <cxxabi.h>
#include <numeric>
#include <set>
#include <sys/mman.h>
#include <tuple>
#include <utility>

namespace software_device {

namespace {

std::map<std::string, const kernel*>& kernels_of(int architecture) {
    static std::map<int, std::map<std::string, const kernel*>> all;
    return all[architecture];
}

/// Addresses without memory, or memory of zeros that takes room when it is used.
void* reserve(u64 bytes, int protection) {
    void* const result = mmap(nullptr, bytes, protection, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (result == MAP_FAILED) {
        throw fault("software device: no address space for " + std::to_string(bytes) + " bytes");
    }
    return result;
}

constexpr u64 address_space = u64{1} << 38;
constexpr u64 cells_per_byte = sizeof(cell) / 4;

/// Addresses of shared memory: zero is none, and what lies behind is not used either.
constexpr u64 shared_start = 1024;

class turns {
  public:
    turns(std::size_t count, thread_order order) : order_(count), kind_(order) {
        std::iota(order_.begin(), order_.end(), u32{0});
        if (order == thread_order::reverse) {
            std::reverse(order_.begin(), order_.end());
        }
    }
    const std::vector<u32>& next() {
        if (kind_ == thread_order::shuffled) {
            for (std::size_t i = order_.size(); i > 1; --i) {
                state_ = state_ * 6364136223846793005U + 1442695040888963407U;
                std::swap(order_[i - 1], order_[(state_ >> 33) % i]);
            }
        }
        return order_;
    }

  private:
    std::vector<u32> order_;
    thread_order kind_;
    u64 state_ = 20261124;
};

/// Adds up what warps asked for since the last barrier.
void add_requests(std::vector<access>& accesses, std::vector<u64>& sectors, counts& to) {
    ++to[counts::phases];
    const double loads_before = to[counts::load_requests];
    // Of each warp, site and turn there: sectors, or words of shared memory by bank.
    std::map<std::tuple<u32, u32, u32>, std::set<u64>> touched;
    std::map<std::pair<u32, u32>, u32> turns;  // of threads at sites
    for (const access& one : accesses) {
        const u32 turn = turns[{one.thread, one.site}]++;
        const u64 piece = one.shared ? 4 : 32;
        auto& pieces = touched[{one.thread / 32, one.site, turn}];
        for (u64 at = one.address / piece; at <= (one.address + one.bytes - 1) / piece; ++at) {
            pieces.insert(at);
        }
    }
    std::map<u32, const access*> kinds;
    for (const access& one : accesses) {
        kinds[one.site] = &one;
    }
    for (const auto& [request, pieces] : touched) {
        const access& kind = *kinds[std::get<1>(request)];
        if (kind.shared) {
            u64 of_bank[32] = {};
            for (const u64 word : pieces) {
                ++of_bank[word % 32];
            }
            ++to[counts::shared_requests];
            to[counts::shared_wavefronts] += static_cast<double>(*std::max_element(of_bank, of_bank + 32));
        } else {
            ++to[kind.store ? counts::store_requests : counts::load_requests];
            to[kind.store ? counts::store_sectors : counts::load_sectors] +=
                static_cast<double>(pieces.size());
            sectors.insert(sectors.end(), pieces.begin(), pieces.end());
        }
    }
    to[counts::load_phases] += to[counts::load_requests] != loads_before ? 1 : 0;
    accesses.clear();
}

/// Which blocks of a grid run: of each row all, or `most` at even distances.
std::vector<u32> chosen_blocks(const launch& what, u32 most) {
    const u32 row = most == 0 ? what.grid[0] : std::min(what.grid[0], most);
    std::vector<u32> result;
    for (u32 y = 0; y < what.grid[1] * what.grid[2]; ++y) {
        for (u32 i = 0; i < row; ++i) {
            result.push_back(y * what.grid[0] + static_cast<u32>(u64{i} * what.grid[0] / row));
        }
    }
    return result;
}

/// Each thread to its next barrier, until all have ended.
void run_threads(block& b, turns& order, counts* count) {
    const u32 saved = b.code->saved_registers;
    std::vector<u64> registers(std::size_t{saved} * b.threads);
    std::vector<int> at(b.threads, 0);
    for (;;) {
        for (const u32 number : order.next()) {
            thread t(b, number);
            at[number] = b.code->run(t, registers.data() + std::size_t{saved} * number, at[number]);
        }
        if (count != nullptr) {
            add_requests(*b.accesses, *b.sectors, *count);
        }
        const auto other = std::adjacent_find(at.begin(), at.end(), std::not_equal_to<>());
        if (other != at.end()) {
            const auto first = other - at.begin();
            throw fault("barrier: not reached by all: thread " + std::to_string(first) +
                        (*other < 0 ? " has ended" : " waits at barrier " + std::to_string(*other)) +
                        ", thread " + std::to_string(first + 1) +
                        (other[1] < 0 ? " has ended" : " waits at barrier " + std::to_string(other[1])));
        }
        if (at.front() < 0) {
            return;
        }
        ++b.phase;
    }
}

}  // namespace

std::string readable(const char* name) {
    int status = 0;
    char* const text = abi::__cxa_demangle(name, nullptr, nullptr, &status);
    const std::string result = status == 0 ? text : name;
    std::free(text);
    return result;
}

const char* const counts::names[] = {"blocks",
                                     "threads",
                                     "integer",
                                     "multiply",
                                     "double",
                                     "convert",
                                     "global",
                                     "shared",
                                     "control",
                                     "load requests",
                                     "load sectors",
                                     "store requests",
                                     "store sectors",
                                     "block sectors",
                                     "launch sectors",
                                     "shared requests",
                                     "shared wavefronts",
                                     "phases",
                                     "load phases"};

registry::registry(int architecture, const kernel* kernels, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        kernels_of(architecture)[kernels[i].name] = &kernels[i];
    }
}
const kernel* registry::find(int architecture, const std::string& name) {
    const auto& all = kernels_of(architecture);
    const auto found = all.find(name);
    return found == all.end() ? nullptr : found->second;
}

void thread::refuse(u32 site, u64 address, u64 bytes, const char* what) const {
    char where[64];
    std::snprintf(where, sizeof where, "0x%llx", static_cast<unsigned long long>(address));
    throw fault("block (" + std::to_string(block_.index[0]) + ", " + std::to_string(block_.index[1]) + ", " +
                std::to_string(block_.index[2]) + "), thread " + std::to_string(number_) + ": " +
                std::to_string(bytes) + " bytes at " + where + " " + what + ", in \"" +
                block_.code->sites[site] + "\"");
}

device_memory::device_memory(u64 most, bool written_at_once)
    : free_(most), fresh_(written_at_once ? written : unwritten) {
    range_.first = reinterpret_cast<u64>(reserve(address_space, PROT_NONE));
    range_.size = address_space;
    range_.bytes = static_cast<u8*>(reserve(address_space, PROT_READ | PROT_WRITE));
    range_.states = static_cast<u8*>(reserve(address_space, PROT_READ | PROT_WRITE));
    range_.cells = static_cast<cell*>(reserve(address_space * cells_per_byte, PROT_READ | PROT_WRITE));
    range_.launch = 0;
    next_ = range_.first + 4096;
}
device_memory::~device_memory() {
    munmap(reinterpret_cast<void*>(range_.first), address_space);
    munmap(range_.bytes, address_space);
    munmap(range_.states, address_space);
    munmap(range_.cells, address_space * cells_per_byte);
}

u64 device_memory::allocate(u64 bytes) {
    constexpr u64 page = 4096;
    if (bytes > free_ || bytes + 2 * page > range_.first + range_.size - next_) {
        return 0;
    }
    const u64 result = next_;
    std::memset(range_.states + (result - range_.first), fresh_, bytes);
    buffers_[result] = bytes;
    free_ -= bytes;
    next_ += (bytes + 2 * page - 1) / page * page;  // a page that is in no buffer
    return result;
}
bool device_memory::release(u64 address) {
    const auto found = buffers_.find(address);
    if (found == buffers_.end()) {
        return false;
    }
    const u64 offset = address - range_.first;
    const u64 pages = (found->second + 4095) / 4096 * 4096;
    madvise(range_.bytes + offset, pages, MADV_DONTNEED);
    madvise(range_.states + offset, pages, MADV_DONTNEED);
    madvise(reinterpret_cast<u8*>(range_.cells) + offset * cells_per_byte, pages * cells_per_byte,
            MADV_DONTNEED);
    free_ += found->second;
    buffers_.erase(found);
    return true;
}
u8* device_memory::at(u64 address, u64 bytes, bool reads, const char* what) {
    auto found = buffers_.upper_bound(address);
    if (found == buffers_.begin() || (--found, address - found->first > found->second) ||
        bytes > found->second - (address - found->first)) {
        throw fault(std::string(what) + ": " + std::to_string(bytes) + " bytes are not in one buffer");
    }
    u8* const states = range_.states + (address - range_.first);
    const u8* const bad =
        reads ? std::find_if(states, states + bytes, [](u8 s) { return s != written; }) : states + bytes;
    if (bad != states + bytes) {
        throw fault(std::string(what) + ": reads memory that nobody wrote, byte " +
                    std::to_string(bad - states) + " of " + std::to_string(bytes));
    }
    return range_.bytes + (address - range_.first);
}
void device_memory::mark_written(u64 address, u64 bytes) {
    std::memset(range_.states + (address - range_.first), written, bytes);
}

void run(const launch& what, device_memory& memory, thread_order order, counts* count, u32 most) {
    static u32 moments = 0;
    ++memory.range().launch;
    std::vector<u8> bytes(what.shared_bytes);
    std::vector<u8> states(what.shared_bytes);
    std::vector<cell> cells(what.shared_bytes / 4 + 1);
    block b{};
    b.code = what.code;
    b.parameters = what.parameters.data();
    b.global = memory.range();
    b.shared = {shared_start, what.shared_bytes, bytes.data(), states.data(), cells.data(), 0};
    std::copy_n(what.grid, 3, b.grid);
    b.threads = what.threads;
    b.visits.resize(what.code->basic_blocks);
    counts found;
    std::vector<access> accesses;
    std::vector<u64> sectors;
    std::vector<u64> all_sectors;
    b.accesses = count == nullptr ? nullptr : &accesses;
    b.sectors = &sectors;
    const std::vector<u32> chosen = chosen_blocks(what, most);
    turns blocks(chosen.size(), order);
    turns threads(what.threads, order);
    try {
        for (const u32 turn : blocks.next()) {
            const u32 number = chosen[turn];
            b.number = number;
            b.index[0] = number % what.grid[0];
            b.index[1] = number / what.grid[0] % what.grid[1];
            b.index[2] = number / what.grid[0] / what.grid[1];
            b.phase = 1;
            b.shared.launch = ++moments;
            std::fill(bytes.begin(), bytes.end(), u8{0xA5});
            std::fill(states.begin(), states.end(), unwritten);
            run_threads(b, threads, count == nullptr ? nullptr : &found);
            std::sort(sectors.begin(), sectors.end());
            sectors.erase(std::unique(sectors.begin(), sectors.end()), sectors.end());
            all_sectors.insert(all_sectors.end(), sectors.begin(), sectors.end());
            sectors.clear();
        }
    } catch (const fault& wrong) {
        throw fault(readable(what.code->name) + ": " + wrong.what());
    }
    if (count == nullptr) {
        return;
    }
    found[counts::blocks] = static_cast<double>(chosen.size());
    found[counts::threads] = found[counts::blocks] * what.threads;
    found[counts::block_sectors] = static_cast<double>(all_sectors.size());
    for (u32 i = 0; i < what.code->basic_blocks; ++i) {
        for (std::size_t c = 0; c < counts::classes; ++c) {
            found[counts::integer + c] += static_cast<double>(b.visits[i]) * what.code->instructions[i][c];
        }
    }
    const double scale =
        static_cast<double>(what.grid[0]) * what.grid[1] * what.grid[2] / static_cast<double>(chosen.size());
    count->add(found, scale);
    // What several blocks touch, all do; what one alone does, each of the others has for itself.
    std::sort(all_sectors.begin(), all_sectors.end());
    double several = 0;
    double alone = 0;
    for (auto first = all_sectors.begin(); first != all_sectors.end();) {
        const auto next = std::find_if(first, all_sectors.end(), [&](u64 x) { return x != *first; });
        ++(next - first > 1 ? several : alone);
        first = next;
    }
    count->of[counts::launch_sectors] += several + alone * scale;
}

}  // namespace software_device
