// The module tensafe._core: arrays in and out, exceptions, the interpreter's lock. What is for people is in
// tensafe/*.py.
#include "module.hpp"

#include <tensafe/core/real.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/core/version.hpp>
#include <tensafe/io/half.hpp>
#include <tensafe/io/peft.hpp>
#include <tensafe/io/private_file.hpp>
#include <tensafe/lora/tracing/scores.hpp>
#include <tensafe/memory/wipe.hpp>
#include <tensafe/random/entropy.hpp>
#include <tensafe/wire/message.hpp>
#include <tensafe/wire/set_id.hpp>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <cmath>
#include <exception>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <pybind11/stl.h>
#include <string>
#include <string_view>
#include <tuple>
#include <utility>

namespace tensafe_python {

namespace {

using tensafe::in_quotes;
using tensafe::require;
using clock = std::chrono::steady_clock;

constexpr std::array all_sets{&private_n4096, &quantum_n4096, &compact_n4096, &minimal_n2048};

const parameter_set& set_numbered(std::uint64_t id) {
    for (const parameter_set* set : all_sets) {
        if (id == set->id) {
            return *set;
        }
    }
    throw tensafe::unsupported_error(
        {"got a message of ", tensafe::wire::set_name(id), ", which the Python package does not have"});
}

message view_of(const py::bytes& b) {
    const std::string_view of = b;
    return {reinterpret_cast<const std::uint8_t*>(of.data()), of.size()};
}

py::bytes to_python(message b) {
    return {reinterpret_cast<const char*>(b.data()), b.size()};
}

/// Calls f, which computes, without the interpreter's lock.
template <class F>
auto computed(F f) {
    const py::gil_scoped_release released;
    return f();
}

tensafe::random::seed seed_of(const py::bytes& b) {
    const message from = view_of(b);
    tensafe::random::seed result;
    tensafe::check_count("got a nonce of ", from.size(), " bytes, expected ", result.bytes.size());
    std::copy(from.begin(), from.end(), result.bytes.begin());
    return result;
}

/// One number in an array, in each of the types that hidden states have.
enum class number { float16, bfloat16, float32, float64 };

template <class F>
auto with_type(number type, F f) {
    switch (type) {
        case number::float16:
            return f(std::uint16_t{}, tensafe::io::float_from_half, tensafe::io::half_from_double, 65504.0);
        case number::bfloat16:
            return f(std::uint16_t{}, tensafe::io::float_from_bfloat16, tensafe::io::bfloat16_from_double,
                     0x1.fep127);
        case number::float32:
            return f(
                float{}, [](float x) { return x; },
                [](double x) { return static_cast<float>(tensafe::flushed(x)); },
                static_cast<double>(std::numeric_limits<float>::max()));
        case number::float64:
            break;
    }
    return f(
        double{}, [](double x) { return static_cast<float>(x); }, [](double x) { return x; },
        std::numeric_limits<double>::max());
}

/// Hidden states in an array of shape [..., d]: rows in order, read where they lie if a row is contiguous.
class states {
  public:
    /// @param bfloat16  whether 16-bit integers are bfloat16, which numpy does not have
    states(py::array from, bool bfloat16) : array_(std::move(from)) {
        const py::dtype type = array_.dtype();
        const bool is_float = type.kind() == 'f';
        const auto size = static_cast<std::size_t>(type.itemsize());
        if (bfloat16 ? type.kind() != 'u' || size != 2 : !is_float || (size != 2 && size != 4 && size != 8)) {
            throw py::type_error("hidden states: got an array of " +
                                 std::string(py::str(static_cast<const py::object&>(type))) +
                                 ", expected float16, float32 or float64");
        }
        require<tensafe::shape_error>(array_.ndim() >= 1, {"hidden states: got a single number, expected an "
                                                           "array of shape [d] or [tokens, d]"});
        type_ = bfloat16    ? number::bfloat16
                : size == 2 ? number::float16
                : size == 4 ? number::float32
                            : number::float64;
        const auto last = array_.ndim() - 1;
        d_ = static_cast<std::size_t>(array_.shape(last));
        count_ = 1;
        for (py::ssize_t k = 0; k < last; ++k) {
            count_ *= static_cast<std::size_t>(array_.shape(k));
        }
        const auto address = reinterpret_cast<std::uintptr_t>(array_.data());
        const bool rows_contiguous = d_ <= 1 || array_.strides(last) == static_cast<py::ssize_t>(size);
        const bool rows_in_step = array_.ndim() == 2
                                      ? array_.strides(0) % static_cast<py::ssize_t>(size) == 0
                                      : array_.ndim() == 1 || (array_.flags() & py::array::c_style) != 0;
        const bool in_place =
            rows_contiguous && rows_in_step && address % size == 0 && type.byteorder() != '>';
        if (!in_place) {
            array_ = py::module_::import("numpy").attr("require")(array_, type.attr("newbyteorder")("="),
                                                                  py::make_tuple("C", "ALIGNED"));
        }
        stride_ = array_.ndim() == 2 ? array_.strides(0) : static_cast<py::ssize_t>(d_ * size);
        data_ = static_cast<const char*>(array_.data());
    }

    const py::array& array() const noexcept { return array_; }
    std::size_t d() const noexcept { return d_; }
    std::size_t count() const noexcept { return count_; }
    number type() const noexcept { return type_; }

    /// Returns row i, in `room` unless it lies as floats already. Without the interpreter's lock.
    std::span<const float> row(std::size_t i, std::vector<float>& room) const {
        const char* const at = data_ + static_cast<std::ptrdiff_t>(i) * stride_;
        if (type_ == number::float32) {
            return {reinterpret_cast<const float*>(at), d_};
        }
        room.resize(d_);
        with_type(type_, [&](auto zero, auto widen, auto, double) {
            const auto* const from = reinterpret_cast<const decltype(zero)*>(at);
            for (std::size_t k = 0; k < d_; ++k) {
                room[k] = widen(from[k]);
            }
        });
        return room;
    }

    /// @throws encoding_error, naming the entry, for one that is no finite float
    void check_finite(std::vector<float>& room) const {
        for (std::size_t i = 0; i < count_; ++i) {
            const std::span<const float> values = row(i, room);
            std::uint32_t largest =
                0;  // of the bits without the sign: those of infinity and NaN are above all
            for (const float x : values) {
                largest = std::max(largest, std::bit_cast<std::uint32_t>(x) & 0x7fffffffU);
            }
            if (largest < 0x7f800000U) {
                continue;
            }
            for (std::size_t k = 0; k < d_; ++k) {
                require<tensafe::encoding_error>(std::isfinite(values[k]),
                                                 {"hidden states: entry ", k, " of row ", i, " of ", count_,
                                                  " is no finite single-precision number"});
            }
        }
    }

  private:
    py::array array_;
    number type_ = number::float32;
    std::size_t d_ = 0;
    std::size_t count_ = 0;
    py::ssize_t stride_ = 0;
    const char* data_ = nullptr;
};

/// Deltas of one site, to be written row after row in the type of the states.
class results {
  public:
    results(const states& of, std::size_t d_out) : type_(of.type()), d_out_(d_out) {
        std::vector<py::ssize_t> shape(of.array().shape(), of.array().shape() + of.array().ndim());
        shape.back() = static_cast<py::ssize_t>(d_out);
        array_ = py::array(of.array().dtype(), shape);
        data_ = array_.mutable_data();
    }
    const py::array& array() const noexcept { return array_; }

    /// Writes a row; entries beyond the type's largest number become that. Without the interpreter's lock.
    /// @return  how many did
    std::size_t write(std::size_t row, std::span<const double> delta) const {
        std::size_t clamped = 0;
        with_type(type_, [&](auto zero, auto, auto narrow, double largest) {
            auto* const to = static_cast<decltype(zero)*>(data_) + row * d_out_;
            for (std::size_t k = 0; k < d_out_; ++k) {
                to[k] = narrow(std::clamp(delta[k], -largest, largest));
                clamped += static_cast<std::size_t>(std::fabs(delta[k]) > largest);
            }
        });
        return clamped;
    }

  private:
    py::array array_;
    number type_;
    std::size_t d_out_;
    void* data_ = nullptr;
};

struct server_object {
    const parameter_set* set;
    std::shared_ptr<const server> held;
};

struct client_object {
    const parameter_set* set;
    std::unique_ptr<client> held;
    std::shared_ptr<key_lock> in_use = std::make_shared<key_lock>();
};

/// The lock of a key. Whoever waits for it does so without the interpreter's lock, which its holder may need.
std::unique_lock<key_lock> locked(key_lock& of) {
    const py::gil_scoped_release released;
    return std::unique_lock(of);
}

lora::adapter adapter_of(const std::vector<site_values>& sites) {
    lora::adapter result;
    for (const auto& [name, a, b, scale] : sites) {
        const auto matrix = [](const float_array& from) {
            lora::matrix to(static_cast<std::size_t>(from.shape(0)), static_cast<std::size_t>(from.shape(1)));
            std::copy_n(from.data(), to.values.size(), to.values.begin());
            return to;
        };
        result.sites.push_back({name, matrix(a), matrix(b), scale});
    }
    return result;
}

py::tuple load_peft(const std::string& directory) {
    lora::adapter loaded;
    {
        const py::gil_scoped_release released;
        loaded = tensafe::io::load_peft(directory);
    }
    std::vector<site_values> result;
    for (lora::adapter_site& site : loaded.sites) {
        const auto array = [](lora::matrix& m) {  // which numpy reads where it lies
            auto kept = std::make_unique<std::vector<float>>(std::move(m.values));
            const py::capsule owner(kept.get(),
                                    [](void* at) { delete static_cast<std::vector<float>*>(at); });
            return float_array({m.rows, m.columns}, kept.release()->data(), owner);
        };
        result.emplace_back(site.name, array(site.a), array(site.b), site.scale);
    }
    return py::make_tuple(result, loaded.notes, loaded.invocation_tokens);
}

server_options options_of(int rows, std::size_t tokens_ahead, bool blind, bool trusts_clients) {
    server_options result;
    result.rows = rows;
    result.tokens_ahead = tokens_ahead > 1 ? tokens_ahead : 0;
    result.mode = blind ? lora::mode::blind : lora::mode::client_held_b;
    result.trusts_clients = trusts_clients;
    return result;
}

std::span<const float> single(const states& from, std::vector<float>& room) {
    require<tensafe::shape_error>(from.count() == 1,
                                  {"encrypt: got ", from.count(), " hidden states, expected one"});
    return from.row(0, room);
}

/// The groups of a layout: input, d and sites of each, with their gains if there are any.
py::list groups_of(const lora::model_layout& layout, std::span<const double> gains = {}) {
    py::list groups;
    for (const auto& g : layout.groups) {
        py::list sites;
        for (const auto& s : g.sites) {
            sites.append(py::make_tuple(s.name, s.rank, s.d_out, gains.empty() ? 0 : gains.front()));
            gains = gains.empty() ? gains : gains.subspan(1);
        }
        groups.append(py::make_tuple(g.input, g.d, sites));
    }
    return groups;
}

/// Returns what a message says of itself. @throws as open_frame
py::dict inspect_message(const py::bytes& b) {
    namespace wire = tensafe::wire;
    const message from = view_of(b);
    const wire::header header = wire::read_header(from);
    wire::wanted_ids own;
    own.set = header.set;
    own.scheme = header.scheme;
    static_cast<void>(wire::open_frame(from, header.what, own));  // length and checksum
    return py::dict(py::arg("kind") = std::string(wire::name(header.what)),
                    py::arg("parameters") = header.set == 0 ? "none" : wire::set_name(header.set),
                    py::arg("number") = header.number, py::arg("group") = header.group,
                    py::arg("bytes") = from.size());
}

/// The scores of tenants, of which `seeds` has one after the other, for statistics of the entries of a site's
/// A or B: from [statistics, entries] to [tenants, statistics].
py::array_t<double> scores(const py::bytes& seeds, const std::string& site, bool of_a,
                           const py::array_t<float, py::array::c_style>& statistics) {
    const message from = view_of(seeds);
    const auto tests = static_cast<std::size_t>(statistics.shape(0));
    const auto entries = static_cast<std::size_t>(statistics.shape(1));
    std::vector<std::span<const float>> values;
    for (std::size_t k = 0; k < tests; ++k) {
        values.emplace_back(statistics.data() + k * entries, entries);
    }
    std::vector<lora::marks> tenants;
    for (std::size_t at = 0; at < from.size(); at += tensafe::random::seed_bytes) {
        tensafe::random::seed seed;
        const tensafe::memory::wipe_guard guard(seed);
        std::copy_n(from.begin() + static_cast<std::ptrdiff_t>(at), seed.bytes.size(), seed.bytes.begin());
        tenants.emplace_back(seed);
    }
    py::array_t<double> sums({tenants.size(), tests});
    const std::span<double> to(sums.mutable_data(), tenants.size() * tests);
    computed([&] {
        std::fill(to.begin(), to.end(), 0);
        lora::add_scores(tenants, site, of_a ? lora::marked_matrix::a : lora::marked_matrix::b, values, to);
    });
    return sums;
}

template <class E>
bool is(const tensafe::error& e) {
    return dynamic_cast<const E*>(&e) != nullptr;
}

/// The advice in the texts of C++, and what it is in Python; longer ones first.
constexpr std::pair<std::string_view, std::string_view> advice[] = {
    {"encrypt this hidden state again with more overflow margin, or use the range policy lora::worst_case",
     "ask again with overflow_margin=2, then 4 and so on, or take the set private_n4096"},
    {"use the range policy lora::worst_case", "take the set private_n4096"},
    {"what client_part makes with the server's options", "Server.held"},
    {"(--trust)", "(ca=)"},
    {"(--step-seconds, --total-seconds)", "(timeout=, total_timeout=)"},
    {"(--total-seconds)", "(total_timeout=)"},
};

/// The names in docs/service.md of refusals after which a client can go on, with another encryption.
constexpr std::pair<tensafe::session::refusal, const char*> codes[] = {
    {tensafe::session::refusal::replayed, "replayed"},
    {tensafe::session::refusal::unknown_block, "unknown_block"},
    {tensafe::session::refusal::block_limit, "block_limit"}};

/// Throws the refusal that a transport raised, as the session reads it.
void throw_refusal(py::error_already_set& raised) {
    if (raised.matches(py::module_::import("tensafe.errors").attr("RefusedError"))) {
        const auto code = py::cast<std::string>(py::str(raised.value().attr("code")));
        for (const auto& [why, name] : codes) {
            if (code == name) {
                throw tensafe::session::refused_error(py::cast<std::string>(py::str(raised.value())), why);
            }
        }
    }
    throw;
}

/// Raises C++ exceptions as the classes of tensafe/errors.py.
void translate(std::exception_ptr thrown) {
    try {
        std::rethrow_exception(std::move(thrown));
    } catch (const tensafe::session::refused_error& e) {
        const bool is_limit = e.why() == tensafe::session::refusal::query_limit;
        const py::object made = py::module_::import("tensafe.errors")
                                    .attr(is_limit ? "QueryLimitError" : "RefusedError")(e.what());
        for (const auto& [why, name] : codes) {
            if (e.why() == why) {
                made.attr("code") = name;
            }
        }
        PyErr_SetObject(py::type::of(made).ptr(), made.ptr());
    } catch (const tensafe::error& e) {
        const char* const name = is<tensafe::shape_error>(e)            ? "ShapeError"
                                 : is<tensafe::parameter_error>(e)      ? "ParameterError"
                                 : is<tensafe::encoding_error>(e)       ? "EncodingError"
                                 : is<tensafe::range_exceeded_error>(e) ? "RangeExceededError"
                                 : is<tensafe::io_error>(e)             ? "FileError"
                                 : is<tensafe::format_error>(e)         ? "FormatError"
                                 : is<tensafe::unsupported_error>(e)    ? "UnsupportedError"
                                 : is<tensafe::signature_error>(e)      ? "SignatureError"
                                 : is<tensafe::closed_error>(e)         ? "ClosedError"
                                                                        : "Error";
        PyErr_SetString(py::module_::import("tensafe.errors").attr(name).ptr(),
                        in_words_of_python(e.what()).c_str());
    }
}

}  // namespace

std::string in_words_of_python(std::string text) {
    for (const auto& [of_cpp, of_python] : advice) {
        if (const std::size_t at = text.find(of_cpp); at != text.npos) {
            text.replace(at, of_cpp.size(), of_python);
        }
    }
    return text;
}

session_object::session_object(std::unique_ptr<session> of, std::shared_ptr<key_lock> in_use,
                               py::object owner)
    : owner_(std::move(owner)), held_(std::move(of)), in_use_(std::move(in_use)) {}

session_object::~session_object() {
    const py::gil_scoped_release released;
    held_.reset();
}

session& session_object::open() const {
    require<tensafe::closed_error>(held_ != nullptr, {"this session is closed"});
    return *held_;
}

py::list session_object::deltas(std::size_t group, std::size_t first, std::size_t count, const py::array& x,
                                bool bfloat16, bool zeros_for_nan, double overflow_margin, py::list partial) {
    const auto lock = locked(*in_use_);
    session& asked = open();
    require<tensafe::parameter_error>(!busy_, {"session: its transport cannot use the session itself"});
    const lora::model_layout::group& g = asked.layout().at(group);
    require<tensafe::parameter_error>(first + count <= g.sites.size(), {"session: no such site"});
    const states from(x, bfloat16);
    require<tensafe::shape_error>(from.d() == g.d, {"hidden states for the input ", in_quotes(g.input),
                                                    ": got ", from.d(), " entries, expected ", g.d});
    std::vector<results> to;
    for (std::size_t s = first; s < first + count; ++s) {
        to.emplace_back(from, g.sites[s].d_out);
    }
    std::vector<float> row;
    tensafe::session::call call(
        group, from.count(), [&](std::size_t i) { return from.row(i, row); }, overflow_margin, zeros_for_nan);
    std::exception_ptr failure;
    {
        const py::gil_scoped_release released;
        busy_ = true;
        const struct at_end {
            session_object& of;
            std::vector<float>& row;
            ~at_end() {
                of.busy_ = false;
                tensafe::memory::wipe(row.data(), row.size() * sizeof(float));
                for (auto& delta : of.deltas_) {
                    tensafe::memory::wipe(delta.data(), delta.size() * sizeof(double));
                }
            }
        } wiped{*this, row};
        std::size_t written = 0;
        const auto write = [&] {
            asked.deltas(group, call.product(written), deltas_);
            for (std::size_t s = 0; s < count; ++s) {
                clamped_deltas_ += to[s].write(written, deltas_[first + s]);
            }
        };
        auto last_look = clock::now();
        const auto between = [&] {
            for (; written < call.rows() && call.is_answered(written); ++written) {
                write();
            }
            if (clock::now() - last_look > std::chrono::milliseconds(50)) {
                const py::gil_scoped_acquire acquired;
                if (PyErr_CheckSignals() != 0) {
                    throw py::error_already_set();
                }
                last_look = clock::now();
            }
        };
        try {
            if (!zeros_for_nan) {
                from.check_finite(row);
            }
            asked.ask(call, between);
        } catch (...) {
            failure = std::current_exception();
        }
        for (; written < call.rows() && call.answered() > 0; ++written) {
            if (call.is_answered(written)) {
                write();
            } else {
                for (std::size_t s = 0; s < count; ++s) {
                    to[s].write(written, std::vector<double>(g.sites[first + s].d_out, std::nan("")));
                }
            }
        }
        bad_states_ += call.bad_rows();
    }
    py::list arrays;
    for (const results& r : to) {
        arrays.append(r.array());
    }
    if (failure) {
        if (call.answered() > 0) {
            py::array_t<bool> answered(std::vector<py::ssize_t>(x.shape(), x.shape() + x.ndim() - 1));
            for (std::size_t i = 0; i < call.rows(); ++i) {
                answered.mutable_data()[i] = call.is_answered(i);
            }
            partial.append(answered);
            partial.append(arrays);
        }
        std::rethrow_exception(failure);
    }
    return arrays;
}

std::optional<std::uint64_t> session_object::queries_left() const {
    const auto lock = locked(*in_use_);
    return open().queries_left();
}

std::optional<std::pair<std::uint64_t, std::uint64_t>> session_object::traffic() const {
    const auto lock = locked(*in_use_);
    return open().traffic();
}

std::optional<double> session_object::round_trip() const {
    const auto lock = locked(*in_use_);
    return open().round_trip();
}

py::list session_object::groups() const {
    const auto lock = locked(*in_use_);
    return groups_of(open().layout(), open().gains());
}

std::vector<std::string> session_object::in_the_clear() const {
    const auto lock = locked(*in_use_);
    std::vector<std::string> names;
    for (const lora::adapter_site& site : open().clear()) {
        names.push_back(site.name);
    }
    return names;
}

void session_object::close() {
    const auto lock = locked(*in_use_);
    require<tensafe::parameter_error>(!busy_, {"session: its transport cannot use the session itself"});
    const py::gil_scoped_release released;  // leaving a server takes time
    held_.reset();
}

PYBIND11_MODULE(_core, m) {
    py::register_exception_translator(translate);

    m.attr("__version__") = tensafe::version().text();
    m.def("load_peft", load_peft);
    m.def("fresh_nonce", [] { return to_python(tensafe::random::fresh_nonce().bytes); });
    py::list names;
    for (const parameter_set* set : all_sets) {
        names.append(set->name);
    }
    m.attr("parameter_sets") = py::tuple(names);
    m.def("inspect_message", inspect_message);
    m.def("scores", scores, py::arg("seeds"), py::arg("site"), py::arg("of_a"), py::arg("statistics"));
    m.def("read_private_file", [](const std::string& file) {
        const auto content = tensafe::io::read_private_file(file, 1024);
        return py::bytes(reinterpret_cast<const char*>(content.data()), content.size());
    });
    m.def("shared_input", [](const std::string& site) { return lora::shared_input(site); });
    m.def("cost", [](std::size_t rank, std::size_t d_in, std::size_t d_out, std::size_t set, int rows,
                     std::size_t tokens_ahead, bool blind, bool trusts_clients) {
        const lora::token_cost c = computed([&] {
            return all_sets.at(set)->cost_of({rank, d_in, d_out},
                                             options_of(rows, tokens_ahead, blind, trusts_clients));
        });
        return py::dict(py::arg("bytes_up") = c.bytes_up, py::arg("bytes_down") = c.bytes_down,
                        py::arg("online_up") = c.online_up, py::arg("online_down") = c.online_down,
                        py::arg("relative_error") = c.relative_error,
                        py::arg("statistical_distance") = c.statistical_distance);
    });

    py::class_<server_object, std::shared_ptr<server_object>>(m, "Server")
        .def(py::init([](const std::vector<site_values>& sites, std::size_t set, int rows,
                         std::size_t tokens_ahead, bool blind, bool trusts_clients,
                         std::optional<std::vector<std::string>> protect,
                         std::map<std::string, std::string, std::less<>> inputs, bool column_scales,
                         bool marks, std::size_t mark_bytes) {
            const lora::adapter adapter = adapter_of(sites);
            server_options options = options_of(rows, tokens_ahead, blind, trusts_clients);
            if (protect) {
                options.protect = [names = std::move(*protect)](const lora::adapter_site& site) {
                    return std::find(names.begin(), names.end(), site.name) != names.end();
                };
            }
            options.column_scales = column_scales;
            options.marks = marks;
            options.mark_bytes = mark_bytes;
            options.input_of = [of = std::move(inputs)](std::string_view s) { return of.find(s)->second; };
            const parameter_set& of = *all_sets.at(set);
            const py::gil_scoped_release released;
            return std::make_shared<server_object>(server_object{&of, of.make_server(adapter, options)});
        }))
        .def_property_readonly("parameters", [](const server_object& s) { return s.set->name; })
        .def_property_readonly("memory", [](const server_object& s) { return s.held->memory(); })
        .def_property_readonly("groups", [](const server_object& s) { return groups_of(s.held->layout()); })
        .def_property_readonly("tokens_ahead",
                               [](const server_object& s) { return s.held->layout().tokens_ahead; })
        .def("layout_message",
             [](const server_object& s) {
                 return to_python(computed([&] { return s.held->layout_message(); }));
             })
        .def("held_message",
             [](const server_object& s) {
                 return to_python(computed([&] { return s.held->held_message(); }));
             })
        .def("of",
             [](const server_object& s, const py::bytes& tenant) {
                 auto seed = seed_of(tenant);
                 const tensafe::memory::wipe_guard guard(seed);
                 return std::make_shared<server_object>(
                     server_object{s.set, computed([&] { return s.held->of(seed); })});
             })
        .def("client",
             [](const server_object& s) {
                 return std::make_shared<client_object>(
                     client_object{s.set, computed([&] { return s.held->make_client(); })});
             })
        .def("open", [](const server_object& s, const py::bytes& nonce, const py::bytes& key) {
            const tensafe::random::seed seed = seed_of(nonce);
            return computed([&, from = view_of(key)] { return s.held->open(seed, from); });
        });

    py::class_<server_session>(m, "ServerSession")
        .def("answer", [](server_session& s, const py::bytes& request) {
            return to_python(computed([&, from = view_of(request)] { return s.answer(from); }));
        });

    py::class_<query>(m, "Query").def("request", [](const query& q) { return to_python(q.request()); });

    py::class_<client_object, std::shared_ptr<client_object>>(m, "Client")
        .def(py::init([](const py::bytes& layout, const py::bytes& held) {
            const parameter_set& set = set_numbered(tensafe::wire::read_header(view_of(layout)).set);
            auto made = std::make_shared<client_object>();
            made->set = &set;
            made->held = computed(
                [&set, of = view_of(layout), part = view_of(held)] { return set.make_client(of, part); });
            return made;
        }))
        .def_property_readonly("parameters", [](const client_object& c) { return c.set->name; })
        .def_property_readonly(
            "groups", [](const client_object& c) { return groups_of(c.held->layout(), c.held->gains()); })
        .def("rerandomization_key",
             [](client_object& c, const py::bytes& nonce) {
                 const tensafe::random::seed seed = seed_of(nonce);
                 const auto lock = locked(*c.in_use);
                 return to_python(computed([&] { return c.held->rerandomization_key(seed); }));
             })
        .def("encrypt",
             [](client_object& c, std::size_t group, const py::array& h, bool bfloat16,
                double overflow_margin) {
                 const states from(h, bfloat16);
                 std::vector<float> room;
                 const std::span<const float> state = single(from, room);
                 const py::gil_scoped_release released;
                 const std::lock_guard lock(*c.in_use);
                 auto result = c.held->encrypt(group, state, overflow_margin);
                 tensafe::memory::wipe(room.data(), room.size() * sizeof(float));
                 return result;
             })
        .def("decrypt",
             [](client_object& c, const query& q, const py::bytes& reply) {
                 auto deltas = computed([&, from = view_of(reply)] {
                     const std::lock_guard lock(*c.in_use);
                     return c.held->decrypt(q, from);
                 });
                 py::list arrays;
                 for (auto& delta : deltas) {
                     arrays.append(py::array_t<double>(static_cast<py::ssize_t>(delta.size()), delta.data()));
                     tensafe::memory::wipe(delta.data(), delta.size() * sizeof(double));
                 }
                 return arrays;
             })
        .def("connect",
             [](const std::shared_ptr<client_object>& c, const std::shared_ptr<server_object>& to) {
                 const auto lock = locked(*c->in_use);
                 auto made = computed([&] { return c->held->connect(to->held); });
                 return std::make_unique<session_object>(std::move(made), c->in_use, py::cast(c));
             })
        .def("connect", [](const std::shared_ptr<client_object>& c, py::function carry) {
            // The session holds the function, and calls it with the interpreter's lock.
            const auto lock = locked(*c->in_use);
            auto made = c->held->connect([function = py::handle(carry)](message request) {
                const py::gil_scoped_acquire acquired;
                py::object reply;
                try {
                    reply = function(to_python(request));
                } catch (py::error_already_set& raised) {
                    throw_refusal(raised);
                }
                if (!py::isinstance<py::bytes>(reply)) {
                    throw py::type_error("the transport returned " +
                                         std::string(py::str(py::type::of(reply).attr("__name__"))) +
                                         ", expected bytes");
                }
                const message got = view_of(py::reinterpret_borrow<py::bytes>(reply));
                return bytes(got.begin(), got.end());
            });
            return std::make_unique<session_object>(std::move(made), c->in_use,
                                                    py::make_tuple(py::cast(c), carry));
        });

    py::class_<session_object>(m, "Session")
        .def("deltas", &session_object::deltas)
        .def("close", &session_object::close)
        .def_property_readonly("bad_states", &session_object::bad_states)
        .def_property_readonly("clamped_deltas", &session_object::clamped_deltas)
        .def_property_readonly("in_the_clear", &session_object::in_the_clear)
        .def_property_readonly("queries_left", &session_object::queries_left)
        .def_property_readonly("traffic", &session_object::traffic)
        .def_property_readonly("round_trip", &session_object::round_trip)
        .def_property_readonly("groups", [](const session_object& s) { return s.groups(); });

#ifdef TENSAFE_PYTHON_NETWORK
    add_connect(m);
#endif
}

}  // namespace tensafe_python
