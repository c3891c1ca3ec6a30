// wire/ and wire/wire.hpp: one message, of any kind. The first byte says what is mended of the rest, so that
// not every input ends at a checksum: 1 the body is lengthened to what the header announces, 2 the announced
// length, 4 the ids of set and scheme, 8 both checksums. A short input so stands for a whole message.

#include <tensafe/wire/checksum.hpp>
#include <tensafe/wire/wire.hpp>

#include "target.hpp"
#include "wire_layouts.hpp"

namespace {

using namespace tensafe;
using wire::kind;

constexpr std::size_t frame_bytes = wire::header_bytes + wire::checksum_bytes;
/// Longer than any message that a reader here expects.
constexpr std::size_t longest_stretched = 40'000;

template <class T>
T get(std::span<const std::uint8_t> bytes, std::size_t at) {
    T value{};
    std::memcpy(&value, bytes.data() + at, sizeof(T));
    return value;
}
template <class T>
void put(std::span<std::uint8_t> bytes, std::size_t at, T value) {
    std::memcpy(bytes.data() + at, &value, sizeof(T));
}

/// The ids that a reader of this kind here expects.
std::uint64_t expected_set(kind what) {
    switch (what) {
        case kind::held_adapter:
            return 0;
        case kind::relinearization_key:
        case kind::galois_keys:
            return wire::set_id<fuzz::switching>;
        default:
            return wire::set_id<fuzz::small>;
    }
}
std::uint64_t expected_scheme(kind what, std::uint64_t got) {
    switch (what) {
        case kind::reply: {
            // Two readers: the lowest bits of what came choose.
            constexpr std::uint64_t bare = wire::scheme_id<fuzz::tiles, fuzz::bare>;
            return got % 4 == 0 ? bare : wire::scheme_id<fuzz::tiles, fuzz::hidden>;
        }
        case kind::request:
        case kind::model_layout:
            return wire::scheme_id<fuzz::tiles, fuzz::hidden>;
        case kind::block_request:
        case kind::block_reply:
        case kind::token_request:
        case kind::token_reply:
            return wire::scheme_id<fuzz::blocks, fuzz::hidden>;
        default:
            return 0;
    }
}

/// The message that an input stands for.
std::vector<std::uint8_t> message_of(std::span<const std::uint8_t> input) {
    const unsigned how = input.empty() ? 0 : input[0];
    const std::span<const std::uint8_t> rest = input.subspan(input.empty() ? 0 : 1);
    std::vector<std::uint8_t> message(rest.begin(), rest.end());
    if (message.size() < frame_bytes) {
        return message;
    }
    const auto announced = get<std::uint64_t>(message, 32);
    const std::size_t there = message.size() - frame_bytes;
    if ((how & 1) != 0 && announced > there && announced <= longest_stretched && there >= 8) {
        message.resize(frame_bytes + static_cast<std::size_t>(announced));
        // The last bytes of the body over and over: they may be anything below a prime.
        for (std::size_t i = wire::header_bytes + there; i < message.size(); ++i) {
            message[i] = message[i - 8];
        }
    }
    const std::span<std::uint8_t> all(message);
    if ((how & 2) != 0) {
        put<std::uint64_t>(all, 32, message.size() - frame_bytes);
    }
    if ((how & 4) != 0) {
        const auto what = static_cast<kind>(message[5]);
        put<std::uint64_t>(all, 8, expected_set(what));
        put<std::uint64_t>(all, 16, expected_scheme(what, get<std::uint64_t>(all, 16)));
    }
    if ((how & 8) != 0) {
        put<std::uint32_t>(all, 44, wire::crc32c(all.first(44)));
        put<std::uint32_t>(all, all.size() - 4,
                           wire::crc32c(all.subspan(wire::header_bytes, all.size() - frame_bytes)));
    }
    return message;
}

/// What was read and is written again must be the message, byte for byte: there is one way to write a value.
void check_same(std::span<const std::uint8_t> message, const std::vector<std::uint8_t>& again) {
    fuzz::holds(std::equal(message.begin(), message.end(), again.begin(), again.end()),
                "what is written again is the same message");
}

/// Packing keeps a residue as it is, so that one beyond its prime would come back the same.
template <class Basis>
void check_residues(const rns::poly<Basis, rns::evaluation_form>& p) {
    rns::for_each_limb<Basis>([&]<int I>() {
        const auto limb = p.template limb<I>();
        fuzz::holds(
            std::all_of(limb.begin(), limb.end(), [](arith::word x) { return x < Basis::template prime<I>; }),
            "residues are below their prime");
    });
}
template <class P, int Level>
void check_residues(const ckks::evaluation_key<P, Level>& key) {
    for (std::size_t d = 0; d < key.digits; ++d) {
        check_residues(key.b(d));
    }
}
/// Every polynomial of what was read.
void check_residues_of(const auto& value) {
    if constexpr (requires { value.b(); }) {
        check_residues(value.b());
    }
    if constexpr (requires { value.key(); }) {
        check_residues(value.key());
    }
    if constexpr (requires { value.keys(); }) {
        for (const auto& [move, key] : value.keys()) {
            check_residues(key);
        }
    }
    if constexpr (requires { value.b.words(); }) {
        check_residues(value.b);
    }
    if constexpr (requires { value.c0.words(); }) {
        check_residues(value.c0);
    }
    if constexpr (requires { value.c1.words(); }) {
        check_residues(value.c1);
    }
    if constexpr (requires { value.outputs.front().c1.words(); }) {
        for (const auto& output : value.outputs) {
            check_residues(output.c1);
        }
    }
}

/// @returns whether it was read
template <class Read, class Write>
bool there_and_back(std::span<const std::uint8_t> message, const wire::envelope& from, Read read,
                    Write write) {
    const auto value = fuzz::read_or_refuse(read);
    if (value) {
        check_residues_of(*value);
        check_same(message, write(*value, from));
    }
    return value.has_value();
}

/// Reads into a value that was used before, which stays as it was if the message is refused.
/// @param used  what it has from before
template <class Value, class Read, class Write>
bool there_and_back_into(std::span<const std::uint8_t> message, const wire::envelope& from, const Value& used,
                         Read read, Write write) {
    Value value = used;
    const bool taken = fuzz::read_or_refuse([&] {
                           read(value);
                           return true;
                       }).has_value();
    std::vector<std::uint8_t> now;
    write(value, from, now);
    if (taken) {
        check_same(message, now);
    } else {
        std::vector<std::uint8_t> before;
        write(used, from, before);
        fuzz::holds(now == before, "a refused message changes nothing");
    }
    return taken;
}

/// Whether one of the readers takes it; at most one does.
bool one_of(std::initializer_list<bool> readers) {
    const auto taken = std::count(readers.begin(), readers.end(), true);
    fuzz::holds(taken <= 1, "a message is of one scheme");
    return taken != 0;
}

/// Whether a reader of this kind takes the message.
bool read_as(kind what, std::span<const std::uint8_t> message, const wire::envelope& from) {
    using fuzz::small;
    switch (what) {
        case kind::rerandomization_key:
            return there_and_back(
                message, from,
                [&] { return wire::read_rerandomization_key<small, fuzz::key_level>(message); },
                [](const auto& value, const auto& e) { return wire::write_rerandomization_key(value, e); });
        case kind::ciphertext: {
            const auto write = [](const auto& value, const auto& e) {
                return wire::write_ciphertext(value, e);
            };
            const bool taken = there_and_back(
                message, from, [&] { return wire::read_ciphertext<small, small::max_level>(message); },
                write);
            return there_and_back(
                       message, from, [&] { return wire::read_ciphertext<small, 0>(message); }, write) ||
                   taken;
        }
        case kind::seeded_ciphertext:
            return there_and_back(
                message, from, [&] { return wire::read_seeded_ciphertext<small>(message); },
                [](const auto& value, const auto& e) { return wire::write_seeded_ciphertext(value, e); });
        case kind::relinearization_key:
            return there_and_back(
                message, from, [&] { return wire::read_relinearization_key<fuzz::switching>(message); },
                [](const auto& value, const auto& e) { return wire::write_relinearization_key(value, e); });
        case kind::galois_keys:
            return there_and_back(
                message, from,
                [&] {
                    return wire::read_galois_keys<fuzz::switching, 0, ckks::rotations<1>, ckks::conjugation>(
                        message);
                },
                [](const auto& value, const auto& e) { return wire::write_galois_keys(value, e); });
        case kind::request:
            return there_and_back_into(
                message, from, fuzz::some_request(fuzz::of_tiles),
                [&](auto& to) { wire::read_request(message, fuzz::of_tiles, to); },
                [](const auto& value, const auto& e, auto& to) {
                    wire::write_request<fuzz::tiles, fuzz::hidden>(value, e, to);
                });
        case kind::reply:
            return one_of(
                {there_and_back_into(
                     message, from, fuzz::some_reply(fuzz::of_tiles),
                     [&](auto& to) { wire::read_reply(message, fuzz::of_tiles, to); },
                     [](const auto& value, const auto& e, auto& to) { wire::write_reply(value, e, to); }),
                 there_and_back(
                     message, from, [&] { return wire::read_reply(message, fuzz::of_bare_tiles); },
                     [](const auto& value, const auto& e) { return wire::write_reply(value, e); })});
        case kind::block_request:
            return there_and_back(
                message, from, [&] { return wire::read_block_request(message, fuzz::of_blocks); },
                [](const auto& value, const auto& e) {
                    std::vector<std::uint8_t> to;
                    wire::write_block_request<small, fuzz::hidden>(value, e, to);
                    return to;
                });
        case kind::block_reply:
            return there_and_back_into(
                message, from, fuzz::some_block_reply(),
                [&](auto& to) { wire::read_block_reply(message, fuzz::of_blocks, to); },
                [](const auto& value, const auto& e, auto& to) {
                    wire::write_block_reply<small, fuzz::hidden>(value, e, to);
                });
        case kind::token_request:
            return there_and_back_into(
                message, from, fuzz::some_token_request(),
                [&](auto& to) { wire::read_token_request(message, fuzz::of_blocks, to); },
                [](const auto& value, const auto& e, auto& to) {
                    wire::write_token_request<small, fuzz::hidden>(value, e, to);
                });
        case kind::token_reply:
            return there_and_back_into(
                message, from, fuzz::some_token_reply(),
                [&](auto& to) { wire::read_token_reply(message, fuzz::of_blocks, 0, to); },
                [](const auto& value, const auto& e, auto& to) {
                    wire::write_token_reply<small, fuzz::hidden>(value, e, to);
                });
        case kind::model_layout:
            return there_and_back(
                message, from,
                [&] { return wire::read_model_layout<small, fuzz::tiles, fuzz::hidden>(message); },
                [](const auto& value, const auto& e) {
                    return wire::write_model_layout<small, fuzz::tiles, fuzz::hidden>(value, e);
                });
        case kind::held_adapter:
            return there_and_back(
                message, from, [&] { return wire::read_held_adapter(message); },
                [](const auto& value, const auto& e) { return wire::write_whole_adapter(value, e); });
        case kind::public_key:
            return there_and_back(
                message, from, [&] { return wire::read_public_key<small>(message); },
                [](const auto& value, const auto& e) { return wire::write_public_key(value, e); });
    }
    return false;
}

constexpr std::array all_kinds = {
    kind::public_key,          kind::rerandomization_key, kind::ciphertext,    kind::seeded_ciphertext,
    kind::relinearization_key, kind::galois_keys,         kind::request,       kind::reply,
    kind::model_layout,        kind::held_adapter,        kind::block_request, kind::block_reply,
    kind::token_request,       kind::token_reply};

}  // namespace

TENSAFE_FUZZ_TARGET(wire) {
    const std::vector<std::uint8_t> message = message_of(input);
    // Polynomials of the small set take 16 KB each, whatever a message says.
    const fuzz::memory_limit limit(100 * message.size() + 400'000);
    const auto head = fuzz::read_or_refuse([&] { return wire::read_header(message); });
    // One of the readers that must refuse; all of them would take most of the time.
    const kind another = all_kinds[(message.empty() ? 0 : message.back()) % all_kinds.size()];
    if (!head) {
        fuzz::holds(!read_as(another, message, {}), "what has no header is no message");
        return;
    }
    const auto again = wire::write_header(*head);
    fuzz::holds(std::equal(again.begin(), again.end(), message.begin()),
                "a header that is written again is the same");
    const wire::envelope own{head->number, head->group, head->unanswered};
    if (read_as(head->what, message, own)) {
        const auto form = std::find(all_kinds.begin(), all_kinds.end(), head->what) - all_kinds.begin();
        fuzz::took(static_cast<std::size_t>(form), all_kinds.size());
    }
    fuzz::holds(another == head->what || !read_as(another, message, head->envelope()),
                "a message is of one kind");
}
