#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>

#include <algorithm>
#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace tensafe::serving {

/// Says where a keyword counts. `substring`: anywhere, as the published system has it ("bond" is in
/// "vagabond").
/// `whole_words`: where no letter, digit or underscore stands beside it ("loan" is not in "loans").
enum class matching { substring, whole_words };

/// An adapter as a keyword gate knows it.
struct gate_entry {
    std::string adapter;
    std::vector<std::string> keywords;
    bool always_active = false;  ///< applied whatever the query says; its keywords do not count
};

/// The outcome of routing a query.
struct routed {
    std::string adapter;    ///< the one to use
    std::string chosen;     ///< the gate's or the callable's choice; another one if it is not loaded
    std::size_t score = 0;  ///< keywords that fired for `chosen`; 0 from a callable or the fallback
    std::vector<std::string> keywords;  ///< the keywords that fired, in lower case
    /// The loaded adapters that act on every query, beside `adapter` (which may be one of them).
    std::vector<std::string> always_active;
};

namespace detail {

/// Whether a byte is of a word: letters, digits, underscores and all that UTF-8 writes with several bytes.
constexpr bool is_word_byte(char c) noexcept {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
           static_cast<unsigned char>(c) >= 0x80;
}

/// Whether these bytes begin with a space or punctuation beyond ASCII: U+0080..U+00BF, U+2000..U+207F
/// (quotation marks, dashes), U+3000..U+303F.
constexpr bool begins_with_unicode_punctuation(std::string_view text) noexcept {
    return text.starts_with("\xC2") || text.starts_with("\xE2\x80") || text.starts_with("\xE2\x81") ||
           text.starts_with("\xE3\x80");
}

constexpr bool word_begins_at(std::string_view text, std::size_t at) noexcept {
    return at == 0 || !is_word_byte(text[at - 1]) || (at >= 2 && text[at - 2] == '\xC2') ||
           (at >= 3 && text[at - 3] != '\xC2' && begins_with_unicode_punctuation(text.substr(at - 3)));
}
constexpr bool word_ends_at(std::string_view text, std::size_t at) noexcept {
    return at == text.size() || !is_word_byte(text[at]) || begins_with_unicode_punctuation(text.substr(at));
}

inline bool occurs(std::string_view keyword, std::string_view text, matching how) noexcept {
    for (std::size_t at = text.find(keyword); at != text.npos; at = text.find(keyword, at + 1)) {
        if (how == matching::substring ||
            (word_begins_at(text, at) && word_ends_at(text, at + keyword.size()))) {
            return true;
        }
    }
    return false;
}

}  // namespace detail

/// Chooses an adapter by keywords, as the published system does: the query in lower case, one point for each
/// distinct keyword that occurs in it, the adapter with most points, the first of equals; the fallback
/// without any point. Adapters that are always active take no part.
///
/// Case is folded for ASCII letters alone; other bytes are compared as they are. A keyword of several words
/// has to stand in the query with the same spaces. Cost: the query's length times the number of keywords:
/// for a megabyte and 14 keywords some three milliseconds, and up to ten more for each keyword that the text
/// is made against. Immutable, thread-safe.
class keyword_gate {
  public:
    /// The most bytes of a keyword.
    static constexpr std::size_t longest_keyword = 256;

    /// Makes a gate.
    /// @param entries   each adapter once, in the order that decides between equals; a keyword that comes
    ///                  twice in one entry counts once
    /// @param fallback  the adapter of one entry
    /// @throws parameter_error if there is no entry, a name is empty or comes twice, a keyword is empty or
    ///         longer than longest_keyword, or the fallback is not among the entries
    explicit keyword_gate(std::vector<gate_entry> entries, std::string fallback,
                          matching how = matching::substring)
        : entries_(std::move(entries)), fallback_(std::move(fallback)), matching_(how) {
        require<parameter_error>(!entries_.empty(),
                                 {"keyword_gate: got no entry, expected at least one adapter"});
        for (gate_entry& entry : entries_) {
            const auto with_name = [&](const gate_entry& e) { return e.adapter == entry.adapter; };
            require<parameter_error>(
                !entry.adapter.empty() && std::count_if(entries_.begin(), entries_.end(), with_name) == 1,
                {"keyword_gate: got ",
                 (entry.adapter.empty() ? std::string("an adapter without a name")
                                        : "the adapter " + quote(entry.adapter) + " twice"),
                 ", expected each once, by name"});
            fold_keywords(entry);
        }
        if (std::none_of(entries_.begin(), entries_.end(),
                         [&](const gate_entry& e) { return e.adapter == fallback_; })) {
            throw parameter_error(
                {"keyword_gate: got the fallback ", in_quotes(fallback_), ", expected one of the entries"});
        }
    }

    /// Returns the gate's choice, whatever is loaded. `always_active` lists all such adapters.
    routed choose(std::string_view query) const {
        const std::string text = fold_case(query);
        routed best{fallback_, fallback_, 0, {}, {}};
        for (const gate_entry& entry : entries_) {
            if (entry.always_active) {
                best.always_active.push_back(entry.adapter);
                continue;
            }
            std::vector<std::string> fired;
            for (const std::string& keyword : entry.keywords) {
                if (detail::occurs(keyword, text, matching_)) {
                    fired.push_back(keyword);
                }
            }
            if (fired.size() > best.score) {
                best.adapter = best.chosen = entry.adapter;
                best.score = fired.size();
                best.keywords = std::move(fired);
            }
        }
        return best;
    }

    /// The adapters in order; keywords in lower case, each once.
    const std::vector<gate_entry>& entries() const noexcept { return entries_; }
    const std::string& fallback() const noexcept { return fallback_; }

    /// The names of the adapters, in order.
    std::vector<std::string> names() const {
        std::vector<std::string> result;
        for (const gate_entry& entry : entries_) {
            result.push_back(entry.adapter);
        }
        return result;
    }

  private:
    static void fold_keywords(gate_entry& entry) {
        std::vector<std::string> folded;
        for (const std::string& keyword : entry.keywords) {
            require<parameter_error>(
                !keyword.empty() && keyword.size() <= longest_keyword,
                {"keyword_gate: adapter ", in_quotes(entry.adapter), " has a keyword of ", keyword.size(),
                 " bytes, expected 1 to ", longest_keyword});
            std::string lower = fold_case(keyword);
            if (std::find(folded.begin(), folded.end(), lower) == folded.end()) {
                folded.push_back(std::move(lower));
            }
        }
        entry.keywords = std::move(folded);
    }

    std::vector<gate_entry> entries_;
    std::string fallback_;
    matching matching_;
};

/// Decides which adapter a query should use: by a keyword gate, or by a callable of the user's.
///
/// It reads the text, so it belongs on the client: the server learns which adapter was asked for, and from
/// that something about the text, but nothing else of it.
///
/// Immutable; thread-safe if the callable is.
class router {
  public:
    using chooser = std::function<std::string(std::string_view)>;
    using loaded = std::function<bool(std::string_view)>;

    /// Routes by a gate. If its choice is not loaded, takes the first of its adapters that is, as published.
    /// Give an empty list as `instead` to refuse, or another order.
    explicit router(keyword_gate gate) : router(std::move(gate), {}, true) {}
    router(keyword_gate gate, std::vector<std::string> instead)
        : router(std::move(gate), std::move(instead), false) {}

    /// Routes by a callable.
    /// @param choose   names an adapter; an empty name stands for none
    /// @param instead  adapters to take, the first that is loaded, where the named one is not; none: that is
    ///                 refused
    /// @throws parameter_error for an empty callable
    explicit router(chooser choose, std::vector<std::string> instead = {}) : instead_(std::move(instead)) {
        require<parameter_error>(choose != nullptr,
                                 {"router: got an empty callable, expected one that names an adapter"});
        choose_ = [call = std::move(choose)](std::string_view query) {
            routed result;
            result.chosen = call(query);
            return result;
        };
    }

    /// Returns the adapter for a query among those that are loaded: `route(query, [&](auto name) { return
    /// set.contains(name); })`. Without a predicate all are loaded. The choice is made first, whatever is.
    /// @throws parameter_error, naming the choice, if neither it nor anything to take instead is loaded, or
    ///         for an empty predicate; what the callables throw
    routed route(
        std::string_view query, const loaded& is_loaded = [](std::string_view) { return true; }) const {
        require<parameter_error>(is_loaded != nullptr,
                                 {"router: got an empty predicate, expected one that says what is loaded"});
        routed result = choose_(query);
        const auto usable = [&](const std::string& name) { return !name.empty() && is_loaded(name); };
        result.adapter = result.chosen;
        if (!usable(result.chosen)) {
            const auto other = std::find_if(instead_.begin(), instead_.end(), usable);
            require<parameter_error>(
                other != instead_.end(),
                {"router: the query was routed to ", in_quotes(result.chosen),
                 ", which is not loaded, nor is any of the ", instead_.size(), " adapters to take instead"});
            result.adapter = *other;
        }
        std::erase_if(result.always_active, [&](const std::string& name) { return !usable(name); });
        return result;
    }

  private:
    router(keyword_gate gate, std::vector<std::string> instead, bool as_published)
        : instead_(as_published ? gate.names() : std::move(instead)) {
        choose_ = [by = std::move(gate)](std::string_view query) { return by.choose(query); };
    }

    std::function<routed(std::string_view)> choose_;
    std::vector<std::string> instead_;
};

}  // namespace tensafe::serving
