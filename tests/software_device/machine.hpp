#pragma once

// The machine on which translated kernels run: memory that knows what was written and by whom, and the
// operations of PTX that are not one operator of C++. Included by every file that translate.py writes.

#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <map>
#include <stdexcept>
#include <string>
#include <type_traits>
#include <vector>

namespace software_device {

using u8 = std::uint8_t;
using u16 = std::uint16_t;
using u32 = std::uint32_t;
using u64 = std::uint64_t;
using u128 = unsigned __int128;
using s8 = std::int8_t;
using s16 = std::int16_t;
using s32 = std::int32_t;
using s64 = std::int64_t;
using f32 = float;
using f64 = double;

/// What a kernel did wrong; the text says which, where and how.
struct fault : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// In which order the threads of a block, and the blocks of a launch, take their turn.
enum class thread_order { forward, reverse, shuffled };

/// A byte of memory: not there, there, or there and written.
inline constexpr u8 absent = 0;
inline constexpr u8 unwritten = 1;
inline constexpr u8 written = 3;

/// Who used four bytes last. A moment is a phase of a launch's block: those of one launch are neighbours.
struct cell {
    u32 launch[3] = {};  ///< in which they were written [0], read [1] and changed by an atomic [2]
    u32 block[3] = {};   ///< by which block; `many` for several
    u32 phase[3] = {};   ///< of that block, counted from 1 by barriers
    u32 thread[3] = {};  ///< `many` for several
};
inline constexpr u32 many = 0xffffffff;

/// Bytes of one kind of memory from address `first` on, with their states and last users.
struct memory_range {
    u64 first;
    u64 size;
    u8* bytes;
    u8* states;
    cell* cells;
    u32 launch;  ///< the number of what runs on it: of a launch, and in shared memory of a block

    bool holds(u64 address, u64 count) const noexcept {
        return address - first < size && count <= size - (address - first);
    }
};

/// One access to memory by one thread.
struct access {
    u32 thread;
    u32 site;
    u64 address;
    u32 bytes;
    bool shared;
    bool store;
};

/// What kernels did, for models of time, as sums over blocks. A request is what a warp asks for at once: the
/// n-th access of each of its threads at one site between two barriers. A sector is a piece of 32 bytes.
struct counts {
    enum what {
        blocks,
        threads,
        integer,  ///< instructions of all threads by class, as many as machine code takes
        multiply,
        doubles,
        convert,
        global,
        shared,
        control,
        load_requests,
        load_sectors,
        store_requests,
        store_sectors,
        block_sectors,   ///< different ones of a block
        launch_sectors,  ///< different ones of a launch
        shared_requests,
        shared_wavefronts,  ///< of a request the words in the fullest bank; at best one for 128 bytes
        phases,             ///< up to a barrier, or the end
        load_phases,        ///< in which device memory is read
        size
    };
    static const char* const names[size];
    static constexpr std::size_t classes = control - integer + 1;

    double of[size] = {};

    double& operator[](std::size_t i) noexcept { return of[i]; }
    double operator[](std::size_t i) const noexcept { return of[i]; }
    void add(const counts& other, double times = 1) noexcept {
        for (std::size_t i = 0; i < size; ++i) {
            of[i] += times * other.of[i];
        }
    }
};

class thread;

/// Where a parameter stands among a kernel's.
struct parameter {
    u32 offset;
    u32 bytes;
};

/// A kernel of a translated file.
struct kernel {
    const char* name;
    u32 parameter_bytes;
    u32 parameter_count;
    const parameter* parameters;
    u32 most_threads;     ///< of a block, as its launch bounds say; 0 if they do not
    u32 saved_registers;  ///< words that a thread keeps at a barrier, at most
    u32 basic_blocks;
    const u16 (*instructions)[counts::classes];  ///< of each basic block, by class
    /// Runs a thread from barrier `from` (0: the start) to the next one, whose number it returns; -1: the
    /// end.
    int (*run)(thread& t, u64* saved, int from);
    const char* const* sites;  ///< texts of the instructions that touch memory or wait, by number
};

/// Each translated file tells of its kernels when the program starts, for code of this architecture.
struct registry {
    /// Null if there is none.
    static const kernel* find(int architecture, const std::string& name);
    registry(int architecture, const kernel* kernels, std::size_t count);
};

/// One block that runs.
struct block {
    const kernel* code;
    const u8* parameters;
    memory_range global;
    memory_range shared;
    u32 grid[3];
    u32 index[3];
    u32 number;  ///< of the block in its launch
    u32 threads;
    u32 phase;                      ///< counted by barriers
    std::vector<u64> visits;        ///< of basic blocks, by all threads
    std::vector<access>* accesses;  ///< since the last barrier; null unless they are counted
    std::vector<u64>* sectors;      ///< of device memory that were touched, each once at the block's end
};

/// One thread of it.
class thread {
  public:
    thread(block& of, u32 number) : block_(of), number_(number) {}

    void visit(u32 basic_block) noexcept { ++block_.visits[basic_block]; }

    u32 tid() const noexcept { return number_; }
    u32 ntid() const noexcept { return block_.threads; }
    u32 ctaid(int axis) const noexcept { return block_.index[axis]; }
    u32 nctaid(int axis) const noexcept { return block_.grid[axis]; }

    template <class T>
    T parameter(u64 at, u32 site) const {
        if (at % sizeof(T) != 0 || at + sizeof(T) > block_.code->parameter_bytes) {
            refuse(site, at, sizeof(T), "reads beyond the kernel's parameters");
        }
        T value;
        std::memcpy(&value, block_.parameters + at, sizeof value);
        return value;
    }

    template <class T, int Count>
    __attribute__((noinline)) void load(memory_range& m, u64 address, T* to, u32 site) {
        u8* const from = checked<sizeof(T) * Count>(m, address, site);
        const u8* const states = m.states + (from - m.bytes);
        for (std::size_t i = 0; i < sizeof(T) * Count; ++i) {
            if (states[i] != written) [[unlikely]] {
                refuse(site, address + i, sizeof(T) * Count, "reads memory that nobody wrote");
            }
        }
        std::memcpy(to, from, sizeof(T) * Count);
        if constexpr (sizeof(T) * Count >= 4) {
            cell* const c = m.cells + (from - m.bytes) / 4;
            for (std::size_t i = 0; i < sizeof(T) * Count / 4; ++i) {
                note_read(m, c[i], address + 4 * i, site);
            }
        }
        note(m, address, sizeof(T) * Count, site, false);
    }
    template <class T, int Count>
    __attribute__((noinline)) void store(memory_range& m, u64 address, const T* values, u32 site) {
        u8* const to = checked<sizeof(T) * Count>(m, address, site);
        std::memset(m.states + (to - m.bytes), written, sizeof(T) * Count);
        std::memcpy(to, values, sizeof(T) * Count);
        if constexpr (sizeof(T) * Count >= 4) {
            cell* const c = m.cells + (to - m.bytes) / 4;
            for (std::size_t i = 0; i < sizeof(T) * Count / 4; ++i) {
                note_write(m, c[i], address + 4 * i, site);
            }
        }
        note(m, address, sizeof(T) * Count, site, true);
    }
    /// The value before; others may do the same at any time.
    template <class T, class F>
    T atomic(u64 address, u32 site, F&& change) {
        u8* const at = checked<sizeof(T)>(block_.global, address, site);
        if (block_.global.states[at - block_.global.bytes] != written) {
            refuse(site, address, sizeof(T), "changes memory that nobody wrote");
        }
        for (std::size_t i = 0; i < sizeof(T) / 4; ++i) {
            cell& c = block_.global.cells[(at - block_.global.bytes) / 4 + i];
            if (races(block_.global, c, 0) || races(block_.global, c, 1)) {
                refuse(site, address, 4, "races: an atomic, with what another thread does that is none");
            }
            add_user(block_.global, c, 2);
        }
        T before;
        std::memcpy(&before, at, sizeof before);
        const T after = change(before);
        std::memcpy(at, &after, sizeof after);
        note(block_.global, address, sizeof(T), site, true);
        return before;
    }

    memory_range& global() noexcept { return block_.global; }
    memory_range& shared() noexcept { return block_.shared; }
    /// The memory of a generic address.
    memory_range& generic(u64 address) noexcept {
        return address - block_.shared.first < (u64{1} << 24) ? block_.shared : block_.global;
    }

    [[noreturn]] void refuse(u32 site, u64 address, u64 bytes, const char* what) const;

  private:
    template <std::size_t Bytes>
    u8* checked(memory_range& m, u64 address, u32 site) const {
        if (address % Bytes != 0) [[unlikely]] {
            refuse(site, address, Bytes, "is not aligned");
        }
        if (!m.holds(address, Bytes) || m.states[address - m.first] == absent ||
            m.states[address - m.first + Bytes - 1] == absent) [[unlikely]] {
            refuse(site, address, Bytes, "is outside of every buffer");
        }
        return m.bytes + (address - m.first);
    }

    bool is_mine(const cell& c, int use) const noexcept {
        return c.block[use] == block_.number && c.thread[use] == number_;
    }
    /// Whether somebody else's use of it has no barrier before now.
    bool races(const memory_range& m, const cell& c, int use) const noexcept {
        return c.launch[use] == m.launch &&
               (c.block[use] != block_.number || (c.phase[use] == block_.phase && c.thread[use] != number_));
    }
    /// Marks a use that several may make at once.
    void add_user(const memory_range& m, cell& c, int use) {
        if (c.launch[use] == m.launch && !(is_mine(c, use) && c.phase[use] == block_.phase)) {
            const bool same_block = c.block[use] == block_.number;
            c.thread[use] = same_block && c.phase[use] != block_.phase ? number_ : many;
            c.block[use] = same_block ? block_.number : many;
        } else {
            c.thread[use] = number_;
            c.block[use] = block_.number;
        }
        c.launch[use] = m.launch;
        c.phase[use] = block_.phase;
    }
    void note_read(memory_range& m, cell& c, u64 address, u32 site) {
        if (races(m, c, 0) || races(m, c, 2)) [[unlikely]] {
            refuse(site, address, 4, "races: it reads what another thread writes without a barrier between");
        }
        add_user(m, c, 1);
    }
    void note_write(memory_range& m, cell& c, u64 address, u32 site) {
        if (races(m, c, 0) || races(m, c, 2)) [[unlikely]] {
            refuse(site, address, 4, "races: it writes what another thread writes without a barrier between");
        }
        if (races(m, c, 1)) [[unlikely]] {
            refuse(site, address, 4, "races: it writes what another thread reads without a barrier between");
        }
        c.launch[0] = m.launch;
        c.block[0] = block_.number;
        c.phase[0] = block_.phase;
        c.thread[0] = number_;
    }
    void note(const memory_range& m, u64 address, u32 bytes, u32 site, bool store) {
        if (block_.accesses != nullptr) [[unlikely]] {
            block_.accesses->push_back({number_, site, address, bytes, &m == &block_.shared, store});
        }
    }

    block& block_;
    u32 number_;
};

/// The memory of a device: addresses that the host cannot use, so that nobody takes one for a pointer. A new
/// buffer is unwritten; what was given back is absent, and its addresses do not come again.
class device_memory {
  public:
    /// @param written_at_once  for models of time: nobody asks what the bytes are
    explicit device_memory(u64 most, bool written_at_once = false);
    ~device_memory();
    device_memory(const device_memory&) = delete;
    device_memory& operator=(const device_memory&) = delete;

    /// 256-byte aligned; 0 if there is no room.
    u64 allocate(u64 bytes);
    /// False if no buffer starts there.
    bool release(u64 address);
    /// For the host's copies. Throws fault unless the bytes are in one buffer, and written if they are read.
    u8* at(u64 address, u64 bytes, bool reads, const char* what);
    void mark_written(u64 address, u64 bytes);
    bool holds(u64 address) const noexcept { return range_.holds(address, 1); }
    memory_range& range() noexcept { return range_; }

  private:
    memory_range range_{};
    std::map<u64, u64> buffers_;
    u64 next_;
    u64 free_;
    u8 fresh_;  ///< the state of new bytes
};

/// A kernel, its grid and its parameters.
struct launch {
    const kernel* code = nullptr;
    u32 grid[3] = {1, 1, 1};
    u32 threads = 1;
    u32 shared_bytes = 0;
    std::vector<u8> parameters;
};

/// Runs blocks, one after the other.  Throws fault.
/// @param count  gets what was counted, if given
/// @param most   of the blocks of a row of the grid only so many run, and counts are scaled; 0: all run
void run(const launch& what, device_memory& memory, thread_order order, counts* count = nullptr,
         u32 most = 0);

/// A kernel's name as C++ has it.
std::string readable(const char* name);

// No templates where there are tens of thousands of uses: they are most of a compiler's time.
inline f64 f64_of(u64 bits) noexcept {
    return std::bit_cast<f64>(bits);
}
inline f32 f32_of(u32 bits) noexcept {
    return std::bit_cast<f32>(bits);
}
inline u64 bits_of(f64 x) noexcept {
    return std::bit_cast<u64>(x);
}
inline u32 bits_of(f32 x) noexcept {
    return std::bit_cast<u32>(x);
}

// Operations, as the manual of PTX defines them.

inline u64 multiply_high(u64 a, u64 b) noexcept {
    return static_cast<u64>((u128{a} * b) >> 64);
}
template <class T>
T divide(T a, T b) {
    if (b == 0) {
        throw fault("divides an integer by zero");
    }
    return a / b;
}
template <class T>
T remainder(T a, T b) {
    if (b == 0) {
        throw fault("divides an integer by zero");
    }
    return a % b;
}
/// Amounts beyond the width give zero.
template <class T>
T shift_left(T a, u32 by) noexcept {
    return by < 8 * sizeof(T) ? static_cast<T>(a << by) : T{0};
}
/// Or copies of the sign.
template <class T>
T shift_right(T a, u32 by) noexcept {
    constexpr u32 width = 8 * sizeof(T);
    return by < width ? static_cast<T>(a >> by) : static_cast<T>(a < 0 ? -1 : 0);
}
inline u32 funnel_left(u32 low, u32 high, u32 by) noexcept {
    return static_cast<u32>((((u64{high} << 32) | low) << by) >> 32);
}
template <class T>
T insert_bits(T from, T into, u32 position, u32 length) noexcept {
    constexpr u32 width = 8 * sizeof(T);
    position &= 0xff;
    length &= 0xff;
    for (u32 i = 0; i < length && position + i < width; ++i) {
        const T bit = T{1} << (position + i);
        into = static_cast<T>((into & ~bit) | (((from >> i) & 1) != 0 ? bit : T{0}));
    }
    return into;
}
inline u32 permute_bytes(u32 a, u32 b, u32 selection) noexcept {
    const u64 from = (u64{b} << 32) | a;
    u32 result = 0;
    for (u32 i = 0; i < 4; ++i) {
        const u32 chosen = selection >> (4 * i);
        u32 value = static_cast<u32>(from >> (8 * (chosen & 7))) & 0xff;
        if ((chosen & 8) != 0) {
            value = (value & 0x80) != 0 ? 0xff : 0;
        }
        result |= value << (8 * i);
    }
    return result;
}
template <class T>
T smaller(T a, T b) noexcept {
    return b < a ? b : a;
}
template <class T>
T larger(T a, T b) noexcept {
    return a < b ? b : a;
}

}  // namespace software_device
