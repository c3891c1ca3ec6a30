#include "adapter_loader.hpp"

#include <tensafe/core/error.hpp>

#include <algorithm>
#include <exception>
#include <utility>

namespace split {

using stage = adapter_load::stage;

namespace {

constexpr std::size_t most_failures = 64;  ///< that are told

/// Of what is being caught.
std::string why_failed() {
    try {
        throw;
    } catch (const std::exception& e) {
        return e.what();
    } catch (...) {
        return "for no reason that is known";
    }
}

}  // namespace

const char* to_string(stage at) noexcept {
    return at == stage::waiting  ? "waiting"
           : at == stage::begun  ? "packing"
           : at == stage::packed ? "packed"
                                 : "failed";
}

adapter_loader::adapter_loader(model_store& to, log to_log, std::size_t threads)
    : to_(to), log_(std::move(to_log)) {
    for (std::size_t i = 0; i < std::max<std::size_t>(threads, 1); ++i) {
        threads_.emplace_back([this](const std::stop_token& stop) { work(stop); });
    }
}

adapter_loader::~adapter_loader() {
    for (std::jthread& each : threads_) {
        each.request_stop();
    }
    threads_.clear();
}

adapter_loader::place adapter_loader::find(std::string_view name) {
    return std::ranges::find(loads_, name, &adapter_load::name);
}

adapter_loader::place adapter_loader::next() {
    const auto waits = [](const adapter_load& each) { return each.at == stage::waiting; };
    const place wanted =
        std::ranges::find_if(loads_, [&](const adapter_load& each) { return waits(each) && each.is_wanted; });
    return wanted != loads_.end() ? wanted : std::ranges::find_if(loads_, waits);
}

adapter_loader::place adapter_loader::first_without_name() {
    return std::ranges::find(loads_, false, &adapter_load::is_named);
}

adapter_loader::outcome adapter_loader::begin(adapter_load what, std::size_t most_waiting) {
    const std::lock_guard lock(mutex_);
    if (const place known = find(what.name); known != loads_.end()) {
        const bool is_held = known->at == stage::packed && known->version == what.version;
        if (known->at <= stage::begun || is_held) {
            return known->at == stage::waiting ? outcome::waiting : outcome::begun;
        }
        all_at_start_ -= known->at_start ? 1U : 0U;
        loads_.erase(known);
    }
    const auto is_at = [](stage at) { return [at](const adapter_load& each) { return each.at == at; }; };
    if (static_cast<std::size_t>(std::ranges::count_if(loads_, is_at(stage::waiting))) >= most_waiting) {
        return outcome::full;
    }
    if (static_cast<std::size_t>(std::ranges::count_if(loads_, is_at(stage::failed))) >= most_failures) {
        loads_.remove_if(is_at(stage::failed));
    }
    all_at_start_ += what.at_start ? 1 : 0;
    what.version = what.version == 0 ? to_.next_version() : what.version;
    what.is_named = !what.at_start;
    loads_.push_back(std::move(what));
    changed_.notify_all();
    return outcome::done;
}

bool adapter_loader::serve(std::string_view name, std::uint64_t version) {
    const std::lock_guard lock(mutex_);
    const place known = find(name);
    const bool is_packed = known != loads_.end() && known->at == stage::packed && known->version == version;
    if (is_packed) {
        serve(known);
    }
    return is_packed;
}

adapter_loader::outcome adapter_loader::remove(const std::string& name) {
    const std::lock_guard lock(mutex_);  // a load of this name ends before or begins after
    const place known = find(name);
    if (known != loads_.end() && known->at == stage::begun) {
        return outcome::begun;
    }
    const bool was_told = known != loads_.end();
    if (was_told) {
        all_at_start_ -= known->at_start ? 1U : 0U;
        loads_.erase(known);
        changed_.notify_all();
    }
    return to_.unload(name) || was_told ? outcome::done : outcome::unknown;
}

std::optional<std::chrono::milliseconds> adapter_loader::want(std::string_view name) {
    const std::lock_guard lock(mutex_);
    const place known = find(name);
    if (known == loads_.end() || known->at == stage::failed) {
        return std::nullopt;
    }
    known->is_wanted = true;
    return std::chrono::milliseconds(known->at == stage::waiting ? 1'000 : 250);
}

std::vector<adapter_load> adapter_loader::loads() const {
    const std::lock_guard lock(mutex_);
    return {loads_.begin(), loads_.end()};
}

adapter_loader::progress adapter_loader::at_start() const {
    const std::lock_guard lock(mutex_);
    progress result{all_at_start_, all_at_start_};
    for (const adapter_load& each : loads_) {
        result.done -= each.at_start ? 1 : 0;
        if (each.at_start && result.failure.empty()) {
            result.failure = each.failure;
        }
    }
    return result;
}

void adapter_loader::wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
        return std::ranges::none_of(loads_, [](const adapter_load& each) { return each.at <= stage::begun; });
    });
}

void adapter_loader::work(const std::stop_token& stop) {
    std::unique_lock lock(mutex_);
    const auto has_work = [&] {
        return first_without_name() != loads_.end() ? !is_naming_ : next() != loads_.end();
    };
    while (changed_.wait(lock, stop, has_work) && !stop.stop_requested()) {
        if (const place unnamed = first_without_name(); unnamed != loads_.end()) {
            name(lock, unnamed);
        } else {
            load(stop, lock, next());
        }
        changed_.notify_all();
    }
}

void adapter_loader::fail(adapter_load& which, std::string failure) {
    log_.line(log_level::error, "adapter_failed", {{"adapter", which.name}, {"what", failure}});
    which.at = stage::failed;
    which.failure = std::move(failure);
}

/// The lock is given back meanwhile, for nobody else removes what is begun.
void adapter_loader::name(std::unique_lock<std::mutex>& lock, place which) {
    which->at = stage::begun;
    is_naming_ = true;
    lock.unlock();
    std::string failure;
    try {
        static_cast<void>(to_.count_under(which->name, which->from()));
    } catch (...) {
        failure = why_failed();
    }
    lock.lock();
    is_naming_ = false;
    which->is_named = true;
    which->at = stage::waiting;
    if (!failure.empty()) {
        fail(*which, std::move(failure));
    }
}

void adapter_loader::load(const std::stop_token& stop, std::unique_lock<std::mutex>& lock, place which) {
    which->at = stage::begun;
    lock.unlock();
    std::shared_ptr<const served_model> packed;
    std::string failure;
    try {
        const auto on_progress = [&](std::size_t done, std::size_t total) {
            if (stop.stop_requested()) {
                throw tensafe::cancelled_error("adapter_loader: the server stops");
            }
            const std::lock_guard counting(mutex_);
            which->done = done;
            which->total = total;
        };
        packed = to_.pack(which->name, which->from, on_progress, which->version);
    } catch (const tensafe::cancelled_error&) {
        // Nobody hears of it any more.
    } catch (...) {
        failure = why_failed();
    }
    lock.lock();
    if (!failure.empty()) {
        fail(*which, std::move(failure));
    } else if (packed == nullptr) {
        loads_.erase(which);
    } else {
        which->at = stage::packed;
        which->packed = std::move(packed);
        if (!which->is_held) {
            serve(which);
        }
    }
}

void adapter_loader::serve(place which) {
    to_.serve(which->packed);
    log_.line(log_level::info, "adapter_loaded", {{"adapter", which->name}, {"version", which->version}});
    loads_.erase(which);
}

}  // namespace split
