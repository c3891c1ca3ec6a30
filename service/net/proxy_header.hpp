#pragma once

#include <algorithm>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/network_v4.hpp>
#include <boost/asio/ip/network_v6.hpp>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace split::net {

/// An address, or a network of them. Those of IPv4 stand within IPv6.
using address_range = boost::asio::ip::network_v6;

inline address_range range_of(const boost::asio::ip::address& one) {
    namespace ip = boost::asio::ip;
    return {one.is_v6() ? one.to_v6() : ip::make_address_v6(ip::v4_mapped, one.to_v4()), 128};
}

/// @param text  an address, or one with the number of bits that all of a network begin with: 10.0.0.0/8
/// @return nothing if it is none, or has bits behind those
inline std::optional<address_range> range_of(const std::string& text) {
    namespace ip = boost::asio::ip;
    boost::system::error_code failure;
    const bool is_v6 = text.find(':') != std::string::npos;
    const std::string whole = text.find('/') != std::string::npos ? text : text + (is_v6 ? "/128" : "/32");
    address_range result;
    if (is_v6) {
        result = ip::make_network_v6(whole, failure);
    } else if (const auto v4 = ip::make_network_v4(whole, failure); !failure) {
        const auto bits = static_cast<unsigned short>(v4.prefix_length() + 96);
        result = address_range(range_of(ip::address(v4.address())).address(), bits);
    }
    return failure || result != result.canonical() ? std::nullopt : std::optional(result);
}

inline bool contains(const address_range& range, const boost::asio::ip::address& one) {
    const address_range network(range_of(one).address(), range.prefix_length());
    return network.network().to_bytes() == range.network().to_bytes();  // whatever their scopes are
}

/// What is known of a header of the PROXY protocol.
struct proxy_header {
    static constexpr std::size_t fixed_bytes = 16;
    static constexpr std::size_t most_bytes = 536;

    std::size_t missing = 0;  ///< bytes of it that are not there yet
    std::string source;       ///< address of the client; empty: the proxy speaks for itself
    std::string unique_id;    ///< of the connection, printable, without quotes; empty: none, or another one

    /// @param bytes  the first fixed_bytes, or the whole header
    /// @return nothing if it is none, or not for TCP over IPv4 or IPv6
    static std::optional<proxy_header> of(std::span<const std::uint8_t> bytes) {
        namespace ip = boost::asio::ip;
        using namespace std::string_view_literals;
        if (bytes[0] == 'P') {
            return of_line({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
        }
        const bool is_one = std::ranges::equal(bytes.first<12>(), "\r\n\r\n\0\r\nQUIT\n"sv, {}, {},
                                               [](char c) { return static_cast<std::uint8_t>(c); });
        const bool is_local = bytes[12] == 0x20 || (bytes[12] == 0x21 && bytes[13] == 0);
        const std::size_t size = bytes[13] == 0x11 ? 4 : bytes[13] == 0x21 ? 16 : 0;  // of an address
        const std::size_t end = fixed_bytes + (std::size_t{bytes[14]} << 8 | bytes[15]);
        const bool has_addresses = bytes[12] == 0x21 && size > 0 && end >= fixed_bytes + 2 * size + 4;
        if (!is_one || end > most_bytes || !(is_local || has_addresses)) {
            return std::nullopt;
        }
        if (bytes.size() < end || is_local) {
            return proxy_header{end - bytes.size(), {}, {}};
        }
        const auto source = [&]<class Address>(Address own, typename Address::bytes_type as = {}) {
            std::copy_n(bytes.begin() + fixed_bytes, as.size(), as.begin());
            return (own = Address(as)).to_string();
        };
        return proxy_header{0, size == 4 ? source(ip::address_v4()) : source(ip::address_v6()),
                            unique_id_in(bytes.first(end).subspan(fixed_bytes + 2 * size + 4))};
    }

  private:
    /// Of version 1: "PROXY TCP4 source destination port port", or TCP6, and CR LF.
    static std::optional<proxy_header> of_line(std::string_view text) {
        constexpr std::size_t longest = 107;
        constexpr std::string_view begin = "PROXY TCP";
        if (!text.starts_with(begin) || text.size() > longest) {
            return std::nullopt;
        }
        if (!text.ends_with("\r\n")) {
            return proxy_header{1, {}, {}};
        }
        const std::size_t at = begin.size() + 2;  // behind the digit and a space
        boost::system::error_code failure;
        const std::string source(text.substr(at, text.find(' ', at) - at));
        const auto address = boost::asio::ip::make_address(source, failure);
        const std::string_view family = address.is_v4() ? "4 " : "6 ";
        const bool is_one =
            !failure && text.substr(begin.size()).starts_with(family) && std::ranges::count(text, ' ') == 5;
        return is_one ? std::optional(proxy_header{0, address.to_string(), {}}) : std::nullopt;
    }

    /// @param fields  of which each is its type, the number of its bytes in two, and these
    static std::string unique_id_in(std::span<const std::uint8_t> fields) {
        constexpr std::uint8_t type = 5;
        constexpr std::size_t longest = 128;
        while (fields.size() >= 3) {
            const std::size_t size = std::size_t{fields[1]} << 8 | fields[2];
            const auto rest = fields.subspan(3);
            if (size > rest.size()) {
                break;
            }
            if (fields[0] == type) {
                const bool is_plain = std::ranges::all_of(rest.first(size), [](std::uint8_t c) {
                    return c >= ' ' && c <= '~' && c != '"' && c != '\'' && c != '\\';
                });
                return is_plain && size <= longest
                           ? std::string(rest.begin(), rest.begin() + static_cast<std::ptrdiff_t>(size))
                           : "";
            }
            fields = rest.subspan(size);
        }
        return {};
    }
};

}  // namespace split::net
