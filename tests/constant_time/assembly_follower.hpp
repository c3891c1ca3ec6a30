#pragma once

#include "assembly_listing.hpp"

namespace tests::assembly {

/// How a value came about, worst last.
enum taint : std::uint8_t {
    clean,   // constants, arguments, and what is computed of them: counters, sizes, pointers
    loaded,  // a word from memory: a pointer or a size from a structure, or a scalar of the data
    kept,    // such a word in a vector register, which was moved alone and no more
    data     // out of a vector
};

struct finding {
    string kind;
    string function;
    string text;
};

/// Follows data through one function, instruction by instruction, until nothing changes.
class follower {
  public:
    /// @param no_return  addresses of functions that do not come back
    follower(const function& f, const std::set<std::uint64_t>& no_return) : f_(f), no_return_(no_return) {
        for (std::size_t i = 0; i < f.code.size(); ++i) {
            at_[f.code[i].address] = i;
            parsed_.emplace_back();
            for (const string& text : f.code[i].operands) {
                parsed_.back().push_back(parse(text));
                const operand& o = parsed_.back().back();
                if (o.stack) {
                    for (long part = 0; part < 64; part += 8) {
                        slots_.emplace(o.displacement + part, 0);
                    }
                }
            }
        }
        int next = first_slot;
        for (auto& [displacement, number] : slots_) {
            number = next++;
        }
        size_ = static_cast<std::size_t>(next);
    }

    std::vector<finding> run() {
        std::vector<std::vector<taint>> before(f_.code.size());
        std::vector<taint> entry(size_, clean);
        std::fill(entry.begin() + first_vector, entry.begin() + flags, data);
        std::vector<std::size_t> open{0};
        before[0] = entry;
        while (!open.empty()) {
            const std::size_t i = open.back();
            open.pop_back();
            state_ = before[i];
            const bool falls_through = step(i, nullptr);
            const auto reach = [&](std::size_t to) {
                bool changed = before[to].empty();
                before[to].resize(size_, clean);
                for (std::size_t r = 0; r < size_; ++r) {
                    changed |= state_[r] > before[to][r];
                    before[to][r] = std::max(before[to][r], state_[r]);
                }
                if (changed) {
                    open.push_back(to);
                }
            };
            if (falls_through && i + 1 < f_.code.size()) {
                reach(i + 1);
            }
            if (starts_with(f_.code[i].mnemonic, "j")) {
                const auto target = at_.find(std::strtoull(f_.code[i].operands.at(0).c_str(), nullptr, 16));
                if (target != at_.end()) {
                    reach(target->second);
                } else if (starts_with(f_.code[i].operands[0], "*")) {
                    for (std::size_t to = 0; to < f_.code.size(); ++to) {  // a jump table: anywhere
                        reach(to);
                    }
                }
            }
        }
        std::vector<finding> found;
        for (std::size_t i = 0; i < f_.code.size(); ++i) {
            if (!before[i].empty()) {
                state_ = before[i];
                step(i, &found);
            }
        }
        return found;
    }

  private:
    taint& at(int r) { return state_[static_cast<std::size_t>(r)]; }

    taint read(const operand& o, bool vector) {
        taint result = o.mask >= 0 ? at(o.mask) : clean;
        if (o.reg >= 0) {
            result = std::max(result, at(o.reg));
        } else if (o.memory && o.stack) {
            result = std::max(result, at(slots_.at(o.displacement)));
        } else if (o.memory && !o.rip) {
            result = std::max(result, vector ? data : loaded);
            constexpr int rsp = 4;
            constexpr int rbp = 5;
            if (o.index >= 0 && (o.base == rsp || o.base == rbp)) {  // of an array there: any slot
                for (std::size_t s = first_slot; s < state_.size(); ++s) {
                    result = std::max(result, state_[s]);
                }
            }
        }
        return result;
    }
    void write(const operand& o, taint t, int bytes) {
        if (o.reg >= 0) {
            at(o.reg) = t;
        } else if (o.memory && o.stack) {
            for (long part = 0; part < bytes; part += 8) {
                taint& slot = at(slots_.at(o.displacement + part));
                slot = o.mask >= 0 ? std::max(slot, t) : t;
            }
        }
    }

    /// @return whether the next instruction may follow
    bool step(std::size_t i, std::vector<finding>* found) {
        const instruction& code = f_.code[i];
        const string& m = code.mnemonic;
        const auto& operands = parsed_[i];
        const auto report = [&](const char* kind) {
            if (found != nullptr) {
                found->push_back({kind, f_.name, code.text});
            }
        };
        if (starts_with(m, "nop") || is_one_of(m, {"endbr64", "vzeroupper", "leave", "cltq", "push"})) {
            return true;
        }
        if (is_one_of(m, {"ret", "ud2", "hlt", "int3"})) {
            return false;
        }
        if (contains(m, "gather") || contains(m, "scatter") || contains(m, "compress") ||
            contains(m, "expand")) {
            report("gather");
        }
        for (const operand& o : operands) {
            if (o.memory && m != "lea" &&
                ((o.base >= 0 && o.base < first_vector && at(o.base) == data) ||
                 (o.index >= 0 && o.index < first_vector && at(o.index) == data))) {
                report("address");
            }
            if (o.memory && o.mask >= 0 && at(o.mask) == data) {
                report("masked access");
            }
        }
        if (m == "call") {
            for (const int r : {0, 1, 2, 6, 7, 8, 9, 10, 11}) {  // what a callee may change
                at(r) = clean;
            }
            at(0) = loaded;
            std::fill(state_.begin() + first_vector, state_.begin() + flags, data);
            return !ends(code, no_return_);
        }
        if (m == "jmp") {
            if (starts_with(code.operands.at(0), "*") && operands[0].reg >= 0 &&
                at(operands[0].reg) == data) {
                report("branch");
            }
            return false;
        }
        if (starts_with(m, "j")) {
            if (at(m == "jrcxz" ? 1 : flags) == data) {
                report("branch");
            }
            return true;
        }
        if (divides(code, operands)) {
            report("division");
        }
        if (m == "cqto" || m == "cltd") {
            at(2) = at(0);
        } else if (!operands.empty()) {
            compute(code, operands);
        }
        return true;
    }

    static bool on_vectors(const instruction& code) {
        return std::any_of(code.operands.begin(), code.operands.end(),
                           [](const string& text) { return contains(text, "mm"); });
    }

    /// Whether it divides data, or takes a root.
    bool divides(const instruction& code, const std::vector<operand>& operands) {
        const string& m = code.mnemonic;
        const bool in_integers = starts_with_one_of(m, {"div", "idiv"}) && operands.size() == 1;
        if (!in_integers && !starts_with_one_of(m, {"vdiv", "vsqrt", "divs", "divp", "sqrts", "sqrtp"})) {
            return false;
        }
        taint worst = in_integers ? std::max(at(0), at(2)) : clean;
        for (const operand& o : operands) {
            worst = std::max(worst, read(o, !in_integers));
        }
        return worst == data;
    }

    /// Whether the last operand is written without being read.
    static bool overwrites(const instruction& code) {
        const string& m = code.mnemonic;
        const bool three = code.operands.size() >= 3;
        return starts_with_one_of(
                   m, {"mov",     "lea",      "set",      "vmov",   "vpbroadcast", "vbroadcast", "kmov",
                       "bsf",     "bsr",      "tzcnt",    "lzcnt",  "popcnt",      "cvt",        "vcvt",
                       "vpabs",   "vpmov",    "vextract", "vpextr", "sqrt",        "pshuf",      "vpshufd",
                       "shlx",    "shrx",     "sarx",     "rorx",   "vpermq",      "vpermpd",    "andn",
                       "vgetexp", "vgetmant", "vrndscale"}) ||
               (three && (starts_with(m, "v") || starts_with(m, "k") || m == "imul"));
    }

    /// Whether the result is a constant whatever the operands are.
    static bool is_constant(const instruction& code, const std::vector<operand>& operands) {
        const string& m = code.mnemonic;
        if (starts_with(m, "vpternlog")) {
            return code.operands[0] == "$0xff" && operands.back().mask < 0;  // all ones
        }
        const bool of_equals =
            operands.size() >= 2 && operands[0].reg >= 0 && operands[0].reg == operands[1].reg;
        return of_equals &&
               starts_with_one_of(m, {"xor", "pxor", "vpxor", "vxorp", "kxor", "kxnor", "vpcmpeq"});
    }

    void compute(const instruction& code, const std::vector<operand>& operands) {
        const string& m = code.mnemonic;
        const operand& to = operands.back();
        const bool vector = on_vectors(code);
        taint sources = clean;
        for (std::size_t k = 0; k + 1 < operands.size(); ++k) {
            sources = std::max(sources, read(operands[k], vector));
        }
        // A pointer or a size of a structure that an argument points to, kept in a vector register: g++ 14.
        const operand& first = operands.front();
        if (m == "vmovq" && first.memory && !first.stack && first.index < 0 && first.base >= 0 &&
            at(first.base) == clean) {
            sources = kept;
        }
        const taint own = read(to, vector);

        if (is_one_of(m, {"cmp", "cmpb", "cmpw", "cmpl", "cmpq", "bt", "btl", "btq", "ptest", "vptest"}) ||
            starts_with_one_of(
                m, {"test", "kortest", "ktest", "vtestp", "vucomis", "ucomis", "vcomis", "comis"})) {
            at(flags) = std::max(sources, own);
            return;
        }
        if (operands.size() == 1 && starts_with_one_of(m, {"mul", "imul", "div", "idiv"})) {
            const taint upper = contains(m, "div") ? at(2) : clean;
            at(0) = at(2) = at(flags) = std::max({own, at(0), upper});
            return;
        }
        if (m == "mulx") {
            const taint product = std::max(sources, at(2));
            write(operands[1], product, 8);
            write(to, product, 8);
            return;
        }
        if (m == "xchg") {
            write(operands[0], std::max(sources, own), 8);
            write(to, std::max(sources, own), 8);
            return;
        }
        if (m == "pop") {
            write(to, clean, 8);
            return;
        }

        taint result = sources;
        if (vector && result == kept && !starts_with(m, "vmov")) {
            result = data;
        }
        const bool accumulates = starts_with_one_of(
            m, {"vfm", "vfnm", "vpmadd52", "vpternlog", "vpermi2", "vpermt2", "vpdp", "vpshld", "vpshrd"});
        const bool merges = to.mask >= 0 && !to.zeroing;
        if (!overwrites(code) || accumulates || merges) {
            result = std::max(result, own);
        } else if (to.mask >= 0) {
            result = std::max(result, at(to.mask));
        }
        if (m == "lea") {
            const operand& from = operands[0];
            result =
                std::max(from.base >= 0 ? at(from.base) : clean, from.index >= 0 ? at(from.index) : clean);
        }
        if (is_constant(code, operands)) {
            result = clean;
        }
        if (starts_with_one_of(m, {"set", "cmov", "adc", "sbb", "rcl", "rcr"})) {
            const bool of_equals = operands.size() == 2 && operands[0].reg >= 0 && operands[0].reg == to.reg;
            result = starts_with(m, "sbb") && of_equals ? at(flags) : std::max(result, at(flags));
        }
        int bytes = 8;
        for (const string& text : code.operands) {
            bytes = std::max(bytes, contains(text, "%zmm")   ? 64
                                    : contains(text, "%ymm") ? 32
                                    : contains(text, "%xmm") ? 16
                                                             : 8);
        }
        write(to, result, bytes);
        if (!vector && !is_one_of(m, {"shlx", "shrx", "sarx", "rorx"}) &&
            starts_with_one_of(
                m, {"add", "adc", "sub", "sbb",  "and", "or",  "xor", "inc",   "dec",   "neg",    "sh",
                    "sa",  "ro",  "rc",  "imul", "bts", "btr", "btc", "tzcnt", "lzcnt", "popcnt", "bs"})) {
            at(flags) = result;
        }
    }

    const function& f_;
    const std::set<std::uint64_t>& no_return_;
    std::map<std::uint64_t, std::size_t> at_;
    std::vector<std::vector<operand>> parsed_;
    std::map<long, int> slots_;
    std::size_t size_ = 0;
    std::vector<taint> state_;
};

}  // namespace tests::assembly
