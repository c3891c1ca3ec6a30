#pragma once

#include <tensafe/core/error.hpp>

#include <array>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

#include "../../examples/tiny_lm/characters.hpp"

// The two texts that the tiny language model learns, made of what Debian ships: one paragraph or verse a
// line.

namespace studies {

using namespace examples::tiny_lm;

/// @throws tensafe::io_error
inline std::string read_text(const std::string& path) {
    std::ifstream in(path, std::ios::binary);
    std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
    if (!in) {
        throw tensafe::io_error("read_text: cannot read \"" + path + "\"");
    }
    return text;
}

namespace detail {

inline void replace_all(std::string& text, std::string_view from, std::string_view to) {
    std::string result;
    std::size_t done = 0;
    for (std::size_t at = text.find(from); at != text.npos; at = text.find(from, done)) {
        result.append(text, done, at - done).append(to);
        done = at + from.size();
    }
    text = result.append(text, done);
}

inline std::string only_known(const std::string& text) {
    std::string kept;
    for (const char c : text) {
        if (is_known(c)) {
            kept += c;
        }
    }
    return kept;
}

inline std::string without_margin(const std::string& line) {
    const std::size_t first = line.find_first_not_of(' ');
    return first == line.npos ? std::string() : line.substr(first, line.find_last_not_of(' ') + 1 - first);
}

}  // namespace detail

/// The lexicon and what follows it, from the Jargon File as plain text (Debian's jargon.txt). Paragraphs with
/// frames of tables are left out, quotation marks and dashes become ASCII, and so do letters with accents.
/// @throws tensafe::format_error if the lexicon is not there
inline std::string jargon_text(std::string raw) {
    const std::size_t lexicon = raw.find("\nGlossary\n");
    if (lexicon == raw.npos) {
        throw tensafe::format_error("jargon_text: the text has no line \"Glossary\", expected jargon.txt");
    }
    raw.erase(0, lexicon + 10);
    constexpr std::array<std::pair<std::string_view, std::string_view>, 16> spelled = {{{"\u201c", "\""},
                                                                                        {"\u201d", "\""},
                                                                                        {"\u2018", "'"},
                                                                                        {"\u2019", "'"},
                                                                                        {"\u00b4", "'"},
                                                                                        {"\u00b7", "-"},
                                                                                        {"\u2014", "--"},
                                                                                        {"\u2212", "-"},
                                                                                        {"\u00a0", " "},
                                                                                        {"\u2022", "*"},
                                                                                        {"\u2192", "->"},
                                                                                        {"\u00f6", "o"},
                                                                                        {"\u00fc", "u"},
                                                                                        {"\u00e9", "e"},
                                                                                        {"\u00e8", "e"},
                                                                                        {"\u00d7", "x"}}};
    for (const auto& [from, to] : spelled) {
        detail::replace_all(raw, from, to);
    }
    std::istringstream in(raw);
    std::string text;
    std::string paragraph;
    bool is_table = false;
    const auto end_paragraph = [&] {
        if (!paragraph.empty() && !is_table) {
            text += paragraph + "\n";
        }
        paragraph.clear();
        is_table = false;
    };
    for (std::string line; std::getline(in, line);) {
        is_table = is_table || line.find("\xe2\x94") != line.npos || line.find("\xe2\x95") != line.npos;
        const std::string words = detail::without_margin(detail::only_known(line));
        if (detail::without_margin(line).empty()) {
            end_paragraph();
        } else if (!words.empty()) {
            paragraph += (paragraph.empty() ? "" : " ") + words;
        }
    }
    end_paragraph();
    return text;
}

/// The verses without their numbers, from what Debian's `bible -l9999` prints.
/// @throws tensafe::format_error if there is no verse
inline std::string verses(const std::string& raw) {
    std::istringstream in(raw);
    std::string text;
    for (std::string line; std::getline(in, line);) {
        const std::string words = detail::without_margin(detail::only_known(line));
        const std::size_t number_ends = words.find_first_not_of("0123456789");
        // Titles of chapters begin at the margin.
        if (line.starts_with(' ') && number_ends != words.npos && words[number_ends] == ' ') {
            text += words.substr(number_ends + 1) + "\n";
        }
    }
    if (text.empty()) {
        throw tensafe::format_error("verses: the text has no line of a verse, expected \"  1 In the ...\"");
    }
    return text;
}

/// A text in two: every twentieth block of 8192 characters is kept from training.
struct parts_of_text {
    std::string learned;
    std::string held_out;

    explicit parts_of_text(std::string_view text) {
        constexpr std::size_t block = 8192;
        constexpr std::size_t one_of = 20;
        for (std::size_t i = 0; i * block < text.size(); ++i) {
            (i % one_of == one_of / 2 ? held_out : learned) += text.substr(i * block, block);
        }
    }
};

}  // namespace studies
