#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <pybind11/numpy.h>
#include <pybind11/pybind11.h>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "engine.hpp"

namespace tensafe_python {

namespace py = pybind11;
using float_array = py::array_t<float, py::array::c_style | py::array::forcecast>;
/// A site: name, A, B, scale.
using site_values = std::tuple<std::string, float_array, float_array, double>;

/// The lock of a secret key: one thread encrypts at a time. A transport may ask for another re-randomization
/// key.
using key_lock = std::recursive_mutex;

/// A session as Python holds it: one call at a time, whatever threads call.
class session_object {
  public:
    /// @param owner  what must live as long
    session_object(std::unique_ptr<session> of, std::shared_ptr<key_lock> in_use, py::object owner);
    ~session_object();

    /// Deltas of `count` sites of a group from `first` on, in the type of x, [..., d] to [..., d_out].
    /// @param partial  if it throws after rows were answered: takes which, [...], and a list of the deltas,
    ///                 NaN in other rows
    py::list deltas(std::size_t group, std::size_t first, std::size_t count, const py::array& x,
                    bool bfloat16, bool zeros_for_nan, double overflow_margin, py::list partial);
    void close();
    std::size_t bad_states() const noexcept { return bad_states_; }
    std::size_t clamped_deltas() const noexcept { return clamped_deltas_; }
    std::optional<std::uint64_t> queries_left() const;
    std::optional<std::pair<std::uint64_t, std::uint64_t>> traffic() const;
    std::optional<double> round_trip() const;
    py::list groups() const;
    std::vector<std::string> in_the_clear() const;

  private:
    /// The session; the caller holds the lock. @throws closed_error after close
    session& open() const;

    py::object owner_;
    std::unique_ptr<session> held_;
    std::shared_ptr<key_lock> in_use_;
    std::vector<std::vector<double>> deltas_;
    std::atomic<std::size_t> bad_states_ = 0;
    std::atomic<std::size_t> clamped_deltas_ = 0;
    bool busy_ = false;  // a transport may be at it, in this thread
};

/// A text of C++ whose advice is what Python does.
std::string in_words_of_python(std::string text);

#ifdef TENSAFE_PYTHON_NETWORK
/// Defines tensafe.connect.
void add_connect(py::module_& m);
#endif

}  // namespace tensafe_python
