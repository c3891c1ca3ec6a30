#include "listed_adapters.hpp"

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>

#include <algorithm>
#include <condition_variable>
#include <exception>
#include <utility>

namespace split {

listed_adapters::listed_adapters(service& of, adapter_list& list, std::shared_ptr<const adapter_source> from,
                                 std::chrono::milliseconds period)
    : of_(of), list_(list), from_(std::move(from)) {
    of_.use_list(this);
    if (period.count() > 0) {
        thread_ = std::jthread([this, period](const std::stop_token& stop) { follow(stop, period); });
    }
}

void listed_adapters::put(const std::string& name, const std::string& directory) {
    from_->check(directory);  // said at once
    list_.put(name, directory);
    look();
}

bool listed_adapters::remove(const std::string& name) {
    const bool was_there = list_.remove(name);
    look();
    return was_there;
}

void listed_adapters::look() {
    const std::lock_guard one_at_a_time(looking_);
    std::vector<tried_version> tried;
    for (const adapter_load& each : of_.loads().loads()) {
        const bool is_packed = each.at == adapter_load::stage::packed;
        if (is_packed || each.at == adapter_load::stage::failed) {
            tried.push_back({each.name, each.version, is_packed});
        }
    }
    const std::vector<listed_adapter> now = list_.look(tried);
    {
        const std::lock_guard lock(mutex_);
        listed_ = now;
    }
    for (auto each = now.begin(); each != now.end(); ++each) {
        const bool has_next = each + 1 != now.end() && (each + 1)->name == each->name;
        if (!each->is_due || !of_.loads().serve(each->name, each->version)) {
            begin(*each, has_next);
        }
    }
    std::erase_if(begun_, [&](const auto& each) {
        const bool is_listed = std::ranges::find(now, each.first, &listed_adapter::name) != now.end();
        // What is being packed is removed at a later look.
        return !is_listed && of_.loads().remove(each.first) != adapter_loader::outcome::begun;
    });
}

/// What failed here may be there by and by.
/// @param has_next  whether another version waits to be due: then this one is for a server that starts alone
void listed_adapters::begin(const listed_adapter& what, bool has_next) {
    constexpr auto before_again = std::chrono::seconds(30);
    const auto served = of_.adapters().find(what.name);
    const auto before = begun_.find(what.name);
    const time_point now = std::chrono::steady_clock::now();
    const std::vector<adapter_load> loads = has_next ? of_.loads().loads() : std::vector<adapter_load>();
    if (has_next && (served || std::ranges::find(loads, what.name, &adapter_load::name) != loads.end())) {
        return;
    }
    if ((served && served->version == what.version) ||
        (before != begun_.end() && before->second.version == what.version &&
         now - before->second.at < before_again)) {
        return;
    }
    const auto read = [&of = of_, from = from_, what] {
        return of.read_adapter(what.name, *from, what.directory);
    };
    adapter_load load{what.name, read};
    load.version = what.version;
    load.is_held = !what.is_due;
    if (of_.loads().begin(std::move(load)) == adapter_loader::outcome::done) {
        begun_.insert_or_assign(what.name, begun_load{what.version, now});
    }
}

std::string listed_adapters::missing() const {
    const std::lock_guard lock(mutex_);
    if (!listed_) {
        return "the list of adapters is not read yet";
    }
    const auto count = std::ranges::count_if(*listed_, [&](const listed_adapter& each) {
        const auto served = of_.adapters().find(each.name);
        return each.is_due && (!served || served->version < each.version);
    });
    return count == 0
               ? ""
               : tensafe::text_of({count, " of ", std::ranges::count(*listed_, true, &listed_adapter::is_due),
                                   " adapters are not served in the version that they should be"});
}

void listed_adapters::follow(const std::stop_token& stop, std::chrono::milliseconds period) {
    bool was_read = true;
    std::mutex idle;
    std::unique_lock lock(idle);
    std::condition_variable_any never;
    do {
        try {
            look();
            was_read = true;
        } catch (const std::exception& e) {
            if (std::exchange(was_read, false)) {
                of_.to_log().line(log_level::warning, "adapter_list_not_read", {{"what", e.what()}});
            }
        }
        never.wait_for(lock, stop, period, [] { return false; });
    } while (!stop.stop_requested());
}

}  // namespace split
