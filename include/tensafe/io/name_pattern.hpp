// Compiling and running of patterns: one file, since both are about the same states.
#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

namespace tensafe::io {

/// The keys of a `rank_pattern` or `alpha_pattern`, in their order. A key fits a module's name as it does for
/// PEFT, where Python's `re.match(r"(.*\.)?(KEY)$", name)` must find something.
///
/// A key may hold characters, `.`, classes, `\d \w \s \D \W \S`, escaped punctuation, groups `(...)` and
/// `(?:...)`, `|`, the repetitions `* + ? {m,n}` (also lazy), `^` and `$`. Whatever else Python reads is
/// refused by name.
///
/// Nothing backtracks: an automaton reads the name once, from its end, and keys without operators are found
/// by halving a sorted list. Const members may be called from any thread.
class name_patterns {
  public:
    static constexpr std::size_t longest_key = 1000;                 ///< in bytes
    static constexpr std::size_t deepest_group = 20;                 ///< groups within each other
    static constexpr std::size_t most_steps = std::size_t{1} << 26;  ///< for all names together: a second

    /// What matching found and spent so far, and room for it to work in.
    struct usage {
        std::vector<bool> fitted;  ///< by key: whether it fitted some name
        std::size_t steps = 0;
        std::vector<bool> reached{};
        std::vector<std::uint32_t> now{};
        std::vector<std::uint32_t> then{};
        std::vector<std::uint32_t> open{};
    };

    name_patterns() = default;

    /// Compiles the keys. Memory: a small multiple of their length.
    /// @param where  what messages call the list
    /// @throws unsupported_error naming the key, unless it is written as above, at most longest_key bytes
    name_patterns(const std::vector<std::string>& keys, std::string where)
        : where_(std::move(where)), count_(keys.size()) {
        most_states_ = 1000;
        for (const std::string& key : keys) {
            most_states_ += 8 * key.size();
        }
        for (std::size_t i = 0; i < count_; ++i) {
            key_ = keys[i];
            text_ = characters(key_);
            if (key_.size() > longest_key) {
                refuse("more than " + std::to_string(longest_key) + " bytes");
            }
            if (key_.find_first_of("\\^$*+?()[]{}|") == key_.npos) {
                std::reverse(text_.begin(), text_.end());
                plain_.push_back({std::move(text_), i});
            } else {
                at_ = depth_ = 0;
                ascii_ = false;
                const std::uint32_t start = alternatives(add(step::accept));
                if (at_ < text_.size()) {
                    refuse("\")\" without \"(\"");
                }
                expressions_.push_back({start, i, ascii_});
            }
        }
        std::sort(plain_.begin(), plain_.end(), [](const plain& left, const plain& right) {
            return std::tie(left.reversed, left.key) < std::tie(right.reversed, right.key);
        });
    }

    /// The first key that fits the name, or nothing; all keys that do are marked in `used`.
    /// @throws unsupported_error if more than most_steps were spent, or `\w` and the like meet a name beyond
    ///         ASCII
    std::optional<std::size_t> first(std::string_view name, usage& used) const {
        used.fitted.resize(count_);
        used.reached.resize(states_.size());
        search one{characters(name), used, std::nullopt, 0, false};
        one.ascii = std::none_of(one.name.begin(), one.name.end(), [](char32_t c) { return c > 0x7F; });
        one.line_end = std::min(one.name.find(U'\n'), one.name.size());
        // `$` stands at the end, and before a newline that is the last character.
        for (std::size_t end = one.name.size();; --end) {
            descend(one, plain_, end, 0);
            for (const expression& each : expressions_) {
                run(one, each, end);
            }
            if (end == 0 || end < one.name.size() || one.name[end - 1] != U'\n') {
                return one.found;
            }
        }
    }

  private:
    enum class step : std::uint8_t { any_of, none_of, fork, begin, end, accept };
    struct state {
        step is;
        std::uint32_t next;   // the state that follows, towards the beginning of the name
        std::uint32_t other;  // of a fork the second one; of a set how many ranges it has
        std::uint32_t range;  // of a set its first range
    };
    struct range {
        char32_t first;
        char32_t last;
    };
    struct plain {
        std::u32string reversed;
        std::size_t key;
    };
    struct expression {
        std::uint32_t start;
        std::size_t key;
        bool ascii;
    };
    struct search {
        std::u32string name;
        usage& used;
        std::optional<std::size_t> found;
        std::size_t line_end;
        bool ascii;

        /// A key fits what stands after `place` if `(.*\.)?` can end there.
        void take(std::size_t key, std::size_t place) {
            if (place == 0 || (name[place - 1] == U'.' && line_end >= place)) {
                used.fitted[key] = true;
                found = std::min(found.value_or(key), key);
            }
        }
    };

    static std::u32string characters(std::string_view text) {
        std::u32string result;
        while (!text.empty()) {
            const auto [code, bytes] = tensafe::detail::first_character(text);
            result += code;
            text.remove_prefix(std::max<std::size_t>(bytes, 1));
        }
        return result;
    }

    void spend(search& one, std::size_t steps) const {
        if ((one.used.steps += steps) > most_steps) {
            throw unsupported_error(where_ + ": not supported: patterns that take more than " +
                                    std::to_string(most_steps) + " steps to match with all sites");
        }
    }

    /// Of keys that agree with the name in the `depth` characters before `end`, takes those that fit. Their
    /// dots are any character but a newline.
    void descend(search& one, std::span<const plain> keys, std::size_t end, std::size_t depth) const {
        for (; !keys.empty() && keys.front().reversed.size() == depth; keys = keys.subspan(1)) {
            one.take(keys.front().key, end - depth);
        }
        if (keys.empty() || depth == end) {
            return;
        }
        const char32_t here = one.name[end - depth - 1];
        const auto with = [&](char32_t c) {
            spend(one, 16);
            const auto low = std::lower_bound(keys.begin(), keys.end(), c, [&](const plain& key, char32_t x) {
                return key.reversed[depth] < x;
            });
            const auto high = std::upper_bound(
                low, keys.end(), c, [&](char32_t x, const plain& key) { return x < key.reversed[depth]; });
            descend(one, {low, high}, end, depth + 1);
        };
        with(here);
        if (here != U'.' && here != U'\n') {
            with(U'.');
        }
    }

    /// Adds a state to `then`, and those that follow without a character.
    void reach(search& one, std::uint32_t from, std::size_t place) const {
        const bool at_end =
            place == one.name.size() || (place + 1 == one.name.size() && one.name[place] == U'\n');
        one.used.open.assign(1, from);
        while (!one.used.open.empty()) {
            const std::uint32_t index = one.used.open.back();
            one.used.open.pop_back();
            if (one.used.reached[index]) {
                continue;
            }
            one.used.reached[index] = true;
            one.used.then.push_back(index);
            const state& s = states_[index];
            if (s.is == step::fork) {
                one.used.open.push_back(s.other);
            }
            if (s.is == step::fork || (s.is == step::begin && place == 0) || (s.is == step::end && at_end)) {
                one.used.open.push_back(s.next);
            }
        }
    }

    void run(search& one, const expression& each, std::size_t end) const {
        if (each.ascii && !one.ascii) {
            throw unsupported_error(where_ +
                                    ": not supported: \\w, \\d and \\s where the name of a site has "
                                    "characters beyond ASCII");
        }
        one.used.then.clear();
        reach(one, each.start, end);
        for (std::size_t place = end; !one.used.then.empty(); --place) {
            std::swap(one.used.now, one.used.then);
            one.used.then.clear();
            spend(one, one.used.now.size());
            for (const std::uint32_t index : one.used.now) {
                one.used.reached[index] = false;
            }
            for (const std::uint32_t index : one.used.now) {
                const state& s = states_[index];
                if (s.is == step::accept) {
                    one.take(each.key, place);
                }
                if (place == 0 || s.is > step::none_of) {
                    continue;
                }
                spend(one, s.other);
                const std::span<const range> set(ranges_.data() + s.range, s.other);
                const bool inside = std::any_of(set.begin(), set.end(), [&](const range& r) {
                    return r.first <= one.name[place - 1] && one.name[place - 1] <= r.last;
                });
                if (inside == (s.is == step::any_of)) {
                    reach(one, s.next, place - 1);
                }
            }
        }
    }

    // Compiling: each function reads a part of text_ from at_, which `next` follows, and returns its first
    // state. Names are read from their end, so what stands to the left in the key follows.

    [[noreturn]] void refuse(const std::string& what) const {
        throw unsupported_error(where_ + " " + quote(key_) + ": not supported in a pattern: " + what);
    }

    void check_room() const {
        if (states_.size() + ranges_.size() >= most_states_) {
            refuse("repetitions that make it longer than " + std::to_string(most_states_) + " states");
        }
    }

    std::uint32_t add(step is, std::uint32_t next = 0, std::uint32_t other = 0, std::uint32_t first = 0) {
        check_room();
        states_.push_back({is, next, other, first});
        return static_cast<std::uint32_t>(states_.size() - 1);
    }

    void add_range(char32_t low, char32_t high) {
        check_room();
        ranges_.push_back({low, high});
    }

    bool sees(char32_t c) const noexcept { return at_ < text_.size() && text_[at_] == c; }
    bool skip(char32_t c) noexcept { return sees(c) && (++at_, true); }

    std::uint32_t alternatives(std::uint32_t next) {
        const auto branch = [&] {
            std::uint32_t start = next;
            while (at_ < text_.size() && !sees(U'|') && !sees(U')')) {
                start = repeated(start);
            }
            return start;
        };
        std::uint32_t start = branch();
        while (skip(U'|')) {
            const std::uint32_t other = branch();
            start = add(step::fork, start, other);
        }
        return start;
    }

    struct times {
        std::size_t least;
        std::optional<std::size_t> most;
    };

    /// Reads the repetition that stands here, if one does. As in Python, other braces are characters.
    std::optional<times> repetition() {
        const std::size_t before = at_;
        if (skip(U'*') || skip(U'+') || skip(U'?')) {
            const char32_t c = text_[before];
            return times{c == U'+' ? 1u : 0u, c == U'?' ? std::optional<std::size_t>(1) : std::nullopt};
        }
        const auto number = [&] {
            std::optional<std::size_t> value;
            for (; at_ < text_.size() && text_[at_] >= U'0' && text_[at_] <= U'9'; ++at_) {
                value = std::min<std::size_t>(value.value_or(0) * 10 + (text_[at_] - U'0'), 1'000'000);
            }
            return value;
        };
        if (skip(U'{') && !sees(U'}')) {
            const std::optional<std::size_t> least = number();
            const std::optional<std::size_t> most = skip(U',') ? number() : least;
            if (skip(U'}')) {
                if (most && *most < least.value_or(0)) {
                    refuse("a repetition whose bounds stand the wrong way round");
                }
                return times{least.value_or(0), most};
            }
        }
        at_ = before;
        return std::nullopt;
    }

    std::uint32_t repeated(std::uint32_t next) {
        const std::size_t begin = at_;
        if (repetition()) {
            refuse("a repetition of nothing");
        }
        const bool is_anchor = sees(U'^') || sees(U'$');
        const std::uint32_t loop = add(step::fork, next, next);
        const std::uint32_t once = item(loop);
        const std::optional<times> wanted = repetition();
        if (!wanted) {
            return once;
        }
        skip(U'?');  // lazy: whether anything is found stays the same
        if (is_anchor || repetition()) {
            refuse("a repetition of an anchor or of a repetition, or a possessive one");
        }
        const std::size_t end = at_;
        std::uint32_t start = wanted->most == 0 ? next : wanted->least > 0 ? once : loop;
        if (!wanted->most) {
            states_[loop].other = once;
        } else if (wanted->least == 0 && *wanted->most > 0) {
            start = add(step::fork, once, next);
        }
        for (std::size_t copies = 1; copies < wanted->most.value_or(wanted->least); ++copies) {
            at_ = begin;
            const std::uint32_t copy = item(start);
            start = copies < wanted->least ? copy : add(step::fork, copy, start);
        }
        at_ = end;
        return start;
    }

    /// A character, a class, an anchor or a group.
    std::uint32_t item(std::uint32_t next) {
        const auto first = static_cast<std::uint32_t>(ranges_.size());
        const char32_t c = text_[at_++];
        bool negated = false;
        if (c == U'^' || c == U'$') {
            return add(c == U'^' ? step::begin : step::end, next);
        }
        if (c == U'(') {
            return group(next);
        }
        if (c == U'[') {
            negated = class_members();
        } else if (c == U'.') {
            negated = true;
            add_range(U'\n', U'\n');
        } else {
            --at_;
            member();
        }
        return add(negated ? step::none_of : step::any_of, next,
                   static_cast<std::uint32_t>(ranges_.size()) - first, first);
    }

    std::uint32_t group(std::uint32_t next) {
        if (skip(U'?') && !skip(U':')) {
            refuse("a group that begins with \"(?\" and not with \"(?:\"");
        }
        if (++depth_ > deepest_group) {
            refuse("more than " + std::to_string(deepest_group) + " groups within each other");
        }
        const std::uint32_t start = alternatives(add(step::fork, next, next));  // each copy has a state
        --depth_;
        if (!skip(U')')) {
            refuse("\"(\" without \")\"");
        }
        return start;
    }

    /// Adds the ranges of a class, after its "["; returns whether it is negated.
    bool class_members() {
        const bool negated = skip(U'^');
        const std::size_t begin = at_;
        while (!sees(U']') || at_ == begin) {
            const std::optional<char32_t> low = member();
            if (sees(U'-') && at_ + 1 < text_.size() && text_[at_ + 1] != U']') {
                ++at_;
                const std::optional<char32_t> high = member();
                if (!low || !high || *high < *low) {
                    refuse("a range of a class that is not two characters in their order");
                }
                ranges_.pop_back();
                ranges_.back().last = *high;
            }
        }
        ++at_;
        return negated;
    }

    /// Adds the ranges of a character or of what is escaped; returns the character, if it is one.
    std::optional<char32_t> member() {
        if (at_ == text_.size()) {
            refuse("\"[\" without \"]\"");
        }
        char32_t c = text_[at_++];
        const bool escaped = c == U'\\' && at_ < text_.size();
        c = escaped ? text_[at_++] : c;
        const bool digit = c >= U'0' && c <= U'9';
        const bool letter = (c >= U'a' && c <= U'z') || (c >= U'A' && c <= U'Z');
        if (!escaped && c == U'\\') {
            refuse("a backslash at the end");
        }
        if (!escaped || (!digit && !letter)) {
            add_range(c, c);
            return c;
        }
        const char32_t kind = c | 0x20u;
        std::vector<range> inside;
        if (letter && kind == U'd') {
            inside = {{U'0', U'9'}};
        } else if (letter && kind == U'w') {
            inside = {{U'0', U'9'}, {U'A', U'Z'}, {U'_', U'_'}, {U'a', U'z'}};
        } else if (letter && kind == U's') {
            inside = {{9, 13}, {28, 32}};
        } else {
            refuse(std::string("\"\\") + static_cast<char>(c) + "\"");
        }
        ascii_ = true;
        inside.push_back({0x110000, 0x110000});
        char32_t outside = 0;
        for (const range& r : inside) {
            if (c != kind) {
                add_range(outside, r.first - 1);
            } else if (r.first < 0x110000) {
                add_range(r.first, r.last);
            }
            outside = r.last + 1;
        }
        return std::nullopt;
    }

    std::string where_;
    std::size_t count_ = 0;
    std::vector<plain> plain_;
    std::vector<expression> expressions_;
    std::vector<state> states_;
    std::vector<range> ranges_;
    // While compiling:
    std::string key_;
    std::u32string text_;
    std::size_t at_ = 0;
    std::size_t depth_ = 0;
    std::size_t most_states_ = 0;
    bool ascii_ = false;
};

}  // namespace tensafe::io
