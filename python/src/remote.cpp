// Sessions with tensafe-server: the client of service, as Python sees it.
#include <tensafe/core/error.hpp>
#include <tensafe/keystore/adapter_pin.hpp>
#include <tensafe/keystore/key_file.hpp>
#include <tensafe/keystore/sha256.hpp>
#include <tensafe/wire/set_id.hpp>

#include <chrono>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <optional>
#include <pybind11/pybind11.h>
#include <service/net/websocket_client.hpp>
#include <service/remote_model.hpp>
#include <string>
#include <utility>

#include "module.hpp"

namespace tensafe_python {

namespace {

namespace keystore = tensafe::keystore;

/// Called without the interpreter's lock while a client waits: Ctrl-C ends it.
void check_signals() {
    const py::gil_scoped_acquire acquired;
    if (PyErr_CheckSignals() != 0) {
        throw py::error_already_set();
    }
}

/// Tells the logger "tensafe", which shows it on standard error unless the program says otherwise.
void report(const std::string& text) {
    const py::gil_scoped_acquire acquired;
    py::module_::import("logging").attr("getLogger")("tensafe").attr("warning")("%s", text);
}

std::chrono::milliseconds checked(const char* name, double seconds) {
    tensafe::require<tensafe::parameter_error>(
        seconds >= 0.001 && seconds <= 86'400,
        {"connect: got a ", name, " of ", seconds, " s, expected 0.001 to 86400"});
    return std::chrono::milliseconds(static_cast<std::chrono::milliseconds::rep>(seconds * 1000));
}

class remote_session final : public session {
  public:
    remote_session(split::remote_model::connector to, keystore::signing_key identity,
                   split::remote_options options) {
        options.between = [this] {
            if (between_) {
                between_();
            }
        };
        model_ = std::make_unique<split::remote_model>(std::move(to), std::move(identity),
                                                       std::make_shared<lora::client<split::params>>(),
                                                       std::move(options));
    }

    const lora::model_layout& layout() const override { return model_->layout(); }
    std::span<const double> gains() const override { return model_->client()->gains(); }
    std::span<const lora::adapter_site> clear() const override { return model_->client()->in_the_clear(); }
    void ask(tensafe::session::call& asked, const std::function<void()>& between) override {
        between_ = between;
        model_->ask(asked);
    }
    void deltas(std::size_t group, std::span<const double> product,
                std::vector<std::vector<double>>& to) const override {
        model_->client()->deltas(group, product, to);
    }
    std::optional<std::uint64_t> queries_left() const override { return model_->queries_left(); }
    std::optional<std::pair<std::uint64_t, std::uint64_t>> traffic() const override {
        const auto wire = model_->counted().wire;
        return std::pair(wire.up, wire.down);
    }
    std::optional<double> round_trip() const override {
        return std::chrono::duration<double>(model_->counted().round_trip).count();
    }

  private:
    std::function<void()> between_;
    std::unique_ptr<split::remote_model> model_;
};

std::unique_ptr<session_object> connect(const std::string& url, const std::string& adapter,
                                        const std::string& ca, const std::string& identity,
                                        const std::string& pin, const std::string& publisher,
                                        std::size_t oldest_revision, bool plaintext, std::size_t tokens_ahead,
                                        double timeout, double total_timeout,
                                        const std::string& traceparent) {
    std::unique_ptr<session> made;
    const split::server_address to = split::server_address::of(url);
    split::websocket_options socket;
    socket.proxy = split::http_proxy::of_environment(to);  // which Python may change where it runs
    socket.traceparent = traceparent;
    {
        const py::gil_scoped_release released;
        tensafe::require<tensafe::parameter_error>(
            to.tls || plaintext,
            {"connect: ", to.text(), " has no TLS, expected wss://, or insecure_plaintext=True as well"});
        socket.trusted_certificates = ca;
        split::remote_options options;
        options.adapter = adapter;
        options.tokens_ahead = tokens_ahead;
        options.step_limit = checked("timeout", timeout);
        options.total_limit = checked("total_timeout", total_timeout);
        options.poll = check_signals;
        options.report = report;
        options.oldest_revision = oldest_revision;
        if (!pin.empty()) {
            options.pin = keystore::adapter_pin::read(pin);
        }
        if (!publisher.empty()) {
            options.publisher = keystore::verifying_key::from_hex(publisher, "publisher");
        }
        made = std::make_unique<remote_session>(
            [to, socket](const split::wait_options& how) {
                return split::connect_websocket(to, socket, how);
            },
            split::client_identity(identity), std::move(options));
    }
    return std::make_unique<session_object>(std::move(made), std::make_shared<key_lock>(), py::none());
}

/// Returns what a key file says of its key, but nothing of the key.
py::dict inspect_key(const std::string& file) {
    const keystore::key_info info = keystore::read_key_info(file);
    return py::dict(py::arg("kind") = "key file", py::arg("parameters") = tensafe::wire::set_name(info.set),
                    py::arg("id") = keystore::hex(info.id), py::arg("generation") = info.generation,
                    py::arg("created") = info.created.time_since_epoch().count(),
                    py::arg("passphrase") = info.wrapped);
}

void translate(std::exception_ptr thrown) {
    const py::module_ errors = py::module_::import("tensafe.errors");
    const auto refused = [&](const char* name, const split::refused_error& e) {
        const py::object made = errors.attr(name)(e.what());
        made.attr("code") = split::to_string(e.code());
        if (e.retry_after()) {
            made.attr("retry_after") = std::chrono::duration<double>(*e.retry_after()).count();
        }
        PyErr_SetObject(py::type::of(made).ptr(), made.ptr());
    };
    try {
        std::rethrow_exception(thrown);
    } catch (const split::rate_limit_error& e) {
        refused("RateLimitError", e);
    } catch (const split::query_limit_error& e) {
        refused("QueryLimitError", e);
    } catch (const split::refused_error& e) {
        refused("RefusedError", e);
    } catch (const split::adapter_changed_error& e) {
        PyErr_SetString(errors.attr("AdapterChangedError").ptr(), e.what());
    } catch (const split::connection_lost& e) {
        PyErr_SetString(errors.attr("ConnectionLost").ptr(), in_words_of_python(e.what()).c_str());
    }
}

}  // namespace

void add_connect(py::module_& m) {
    py::register_exception_translator(translate);
    m.def("connect", connect);
    m.def("inspect_key", inspect_key);
}

}  // namespace tensafe_python
