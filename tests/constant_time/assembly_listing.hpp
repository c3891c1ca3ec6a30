#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <istream>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <vector>

// What objdump -d -C --no-show-raw-insn prints, as functions of instructions with operands.
namespace tests::assembly {

using std::string;
using std::string_view;

struct instruction {
    std::uint64_t address = 0;
    string mnemonic;
    std::vector<string> operands;  // the last one is written
    string text;
};

struct function {
    string name;
    std::vector<instruction> code;
};

inline bool starts_with(string_view text, string_view prefix) {
    return text.substr(0, prefix.size()) == prefix;
}
inline bool contains(string_view text, string_view part) {
    return text.find(part) != string_view::npos;
}
inline bool is_one_of(string_view text, std::initializer_list<string_view> set) {
    return std::find(set.begin(), set.end(), text) != set.end();
}
inline bool starts_with_one_of(string_view text, std::initializer_list<string_view> set) {
    return std::any_of(set.begin(), set.end(), [&](string_view p) { return starts_with(text, p); });
}

inline std::vector<string> split_operands(const string& text) {
    std::vector<string> result;
    string current;
    int depth = 0;
    for (const char c : text) {
        depth += c == '(' ? 1 : c == ')' ? -1 : 0;
        if (c == ',' && depth == 0) {
            result.push_back(current);
            current.clear();
        } else if (c != ' ') {
            current += c;
        }
    }
    if (!current.empty()) {
        result.push_back(current);
    }
    return result;
}

/// Lines as "  1234:\tadd    %rax,%rbx", under "0000000000001230 <name>:".
inline std::vector<function> read_listing(std::istream& in) {
    std::vector<function> result;
    string line;
    while (std::getline(in, line)) {
        const std::size_t open = line.find(" <");
        if (!line.empty() && line.back() == ':' && open != string::npos && line[0] != ' ') {
            result.push_back({line.substr(open + 2, line.size() - open - 4), {}});
            continue;
        }
        const std::size_t colon = line.find(":\t");
        if (colon == string::npos || result.empty()) {
            continue;
        }
        instruction i;
        i.address = std::strtoull(line.c_str(), nullptr, 16);
        i.text = line.substr(colon + 2);
        string rest = i.text.substr(0, i.text.find(" #"));
        rest = rest.substr(0, rest.find(" <"));
        std::size_t space = rest.find(' ');
        i.mnemonic = rest.substr(0, space);
        while (is_one_of(i.mnemonic,
                         {"notrack", "bnd", "rep", "repz", "repnz", "lock", "data16", "cs", "ds", "rex.W"}) &&
               space != string::npos) {
            rest = rest.substr(rest.find_first_not_of(' ', space));
            space = rest.find(' ');
            i.mnemonic = rest.substr(0, space);
        }
        i.operands = space == string::npos ? std::vector<string>() : split_operands(rest.substr(space));
        result.back().code.push_back(std::move(i));
    }
    return result;
}

/// Where a value stands: 0 to 15 general registers, 16 to 23 masks, 24 to 55 vectors, 56 flags; stack slots
/// follow.
inline constexpr int first_mask = 16;
inline constexpr int first_vector = 24;
inline constexpr int flags = 56;
inline constexpr int first_slot = 57;

/// -1 for what is no register that is followed, as %rip and %fs.
inline int register_number(string_view name) {
    static const std::map<string, int, std::less<>> general = [] {
        std::map<string, int, std::less<>> map;
        const std::array<string, 8> old{"ax", "cx", "dx", "bx", "sp", "bp", "si", "di"};
        for (int r = 0; r < 8; ++r) {
            const string& n = old[static_cast<std::size_t>(r)];
            map["%r" + n] = map["%e" + n] = map["%" + n] = r;
            map["%" + (r < 4 ? n.substr(0, 1) : n) + "l"] = r;
            if (r < 4) {
                map["%" + n.substr(0, 1) + "h"] = r;
            }
        }
        for (int r = 8; r < 16; ++r) {
            for (const char* suffix : {"", "d", "w", "b"}) {
                map["%r" + std::to_string(r) + suffix] = r;
            }
        }
        return map;
    }();
    const auto found = general.find(name);
    if (found != general.end()) {
        return found->second;
    }
    if (name.size() == 3 && starts_with(name, "%k")) {
        return first_mask + (name[2] - '0');
    }
    if (starts_with(name, "%xmm") || starts_with(name, "%ymm") || starts_with(name, "%zmm")) {
        return first_vector + std::atoi(string(name.substr(4)).c_str());
    }
    return -1;
}

struct operand {
    bool memory = false;
    bool rip = false;       // a constant of the program
    bool stack = false;     // disp(%rsp), disp(%rbp)
    long displacement = 0;  // of stack slots
    int base = -1;
    int index = -1;
    int reg = -1;
    int mask = -1;
    bool zeroing = false;
};

inline operand parse(const string& text) {
    operand o;
    string body = text.substr(0, text.find('{'));
    for (std::size_t at = text.find('{'); at != string::npos; at = text.find('{', at + 1)) {
        const string decoration = text.substr(at + 1, text.find('}', at) - at - 1);
        if (decoration == "z") {
            o.zeroing = true;
        } else if (starts_with(decoration, "%k")) {
            o.mask = register_number(decoration);
        }
    }
    const std::size_t open = body.find('(');
    if (open == string::npos) {
        o.reg = starts_with(body, "%") ? register_number(body) : -1;
        o.memory = contains(body, "%fs:") || (!body.empty() && body[0] != '%' && body[0] != '$');
        return o;
    }
    o.memory = true;
    const string inside = body.substr(open + 1, body.find(')') - open - 1);
    const auto parts = split_operands(inside);
    o.rip = !parts.empty() && parts[0] == "%rip";
    o.base = parts.empty() || parts[0].empty() ? -1 : register_number(parts[0]);
    o.index = parts.size() > 1 ? register_number(parts[1]) : -1;
    constexpr int rsp = 4;
    constexpr int rbp = 5;
    o.stack = parts.size() == 1 && (o.base == rsp || o.base == rbp);
    o.displacement = std::strtol(body.c_str(), nullptr, 16) + (o.base == rbp ? 1L << 40 : 0);
    return o;
}

/// Whether a call does not come back.
inline bool ends(const instruction& call, const std::set<std::uint64_t>& no_return) {
    static constexpr std::array<const char*, 5> last_calls{"assert_fail", "__cxa_throw", "std::__throw",
                                                           "_Unwind_Resume", "std::terminate"};
    return no_return.count(std::strtoull(call.operands.at(0).c_str(), nullptr, 16)) != 0 ||
           std::any_of(last_calls.begin(), last_calls.end(),
                       [&](const char* name) { return contains(call.text, name); });
}

/// Functions that neither return nor jump elsewhere.
inline std::set<std::uint64_t> functions_without_return(const std::vector<function>& functions) {
    std::set<std::uint64_t> result;
    for (const function& f : functions) {
        const bool goes_on = std::any_of(f.code.begin(), f.code.end(), [&](const instruction& i) {
            if (i.mnemonic != "jmp") {
                return i.mnemonic == "ret";
            }
            const std::uint64_t to = std::strtoull(i.operands.at(0).c_str(), nullptr, 16);
            return to < f.code.front().address || to > f.code.back().address;
        });
        if (!f.code.empty() && !goes_on && !contains(f.name, "@plt")) {
            result.insert(f.code.front().address);
        }
    }
    return result;
}

}  // namespace tests::assembly
