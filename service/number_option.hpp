#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>

#include <CLI/CLI.hpp>

#include <string>
#include <type_traits>

namespace split {

/// Checks every option that is a number: from `least` to `most`, as CLI::Range, which lets NaN pass.
template <class Number>
CLI::Validator number_in(Number least, Number most) {
    const std::string range = tensafe::text_of({"[", least, " - ", most, "]"});
    return {
        [=](std::string& text) {
            Number got{};
            return CLI::detail::lexical_cast(text, got) && least <= got && got <= most
                       ? std::string()
                       : tensafe::text_of({"got ", tensafe::in_quotes(text), ", expected one in ", range});
        },
        CLI::detail::type_name<Number>() + (" in " + range)};
}

template <class Number>
CLI::Option* add_number(CLI::App& app, const char* name, Number& value, std::type_identity_t<Number> least,
                        std::type_identity_t<Number> most, const char* what = "") {
    return app.add_option(name, value, what)->check(number_in(least, most))->capture_default_str();
}

/// Refuses empty values of all options so far: a variable of a shell that is not set would choose the
/// default.
inline void refuse_nothing(CLI::App& app) {
    for (CLI::Option* const each :
         app.get_options([](const CLI::Option* o) { return o->get_items_expected() > 0; })) {
        each->check([](const std::string& value) {
            return value.empty() ? "got nothing, expected a value: is a variable not set?" : std::string();
        });
    }
}

}  // namespace split
