#include "listed_adapters.hpp"

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>

#include <algorithm>
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

listed_adapters::~listed_adapters() {
    of_.use_list(nullptr);
    thread_ = {};
    const std::lock_guard lock(heard_->mutex);
    heard_->is_over = true;
    heard_->changed.notify_all();
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
        if (each.at == adapter_load::stage::failed) {
            tried.push_back({each.name, each.version, false});
        }
    }
    {
        const std::lock_guard lock(heard_->mutex);
        for (const auto& [name, version] : heard_->packed) {
            tried.push_back({name, version, true});
        }
    }
    const std::vector<listed_adapter> now = list_.look(tried);
    {
        const std::lock_guard lock(heard_->mutex);
        heard_->listed.clear();
        for (const listed_adapter& each : now) {
            heard_->listed.emplace(each.name, each);
        }
        heard_->is_read = true;
    }
    heard_->changed.notify_all();
    for (const listed_adapter& each : now) {
        begin(each);
    }
    std::erase_if(begun_, [&](const auto& each) {
        const bool is_listed = std::ranges::find(now, each.first, &listed_adapter::name) != now.end();
        // What is being packed is removed at a later look.
        return !is_listed && of_.loads().remove(each.first) != adapter_loader::outcome::begun;
    });
}

/// What failed here may be there by and by.
void listed_adapters::begin(const listed_adapter& what) {
    constexpr auto before_again = std::chrono::seconds(30);
    const auto served = of_.adapters().find(what.name);
    const auto before = begun_.find(what.name);
    const time_point now = std::chrono::steady_clock::now();
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
    load.before_served = [heard = heard_, what] { heard->wait_until_due(what.name, what.version); };
    if (of_.loads().begin(std::move(load)) == adapter_loader::outcome::done) {
        begun_.insert_or_assign(what.name, begun_load{what.version, now});
    }
}

/// On a thread of the loader.  @throws cancelled_error if the list has another version by then, or none
void listed_adapters::heard::wait_until_due(const std::string& name, std::uint64_t version) {
    std::unique_lock lock(mutex);
    packed[name] = version;
    const auto is_listed = [&] {
        const auto found = listed.find(name);
        return !is_over && found != listed.end() && found->second.version == version;
    };
    changed.wait(lock, [&] { return !is_listed() || listed.at(name).is_due; });
    packed.erase(name);
    if (!is_listed()) {
        throw tensafe::cancelled_error("listed_adapters: another version, or none, is on the list");
    }
}

std::string listed_adapters::missing() const {
    const std::lock_guard lock(heard_->mutex);
    if (!heard_->is_read) {
        return "the list of adapters is not read yet";
    }
    const auto count = std::ranges::count_if(heard_->listed, [&](const auto& each) {
        const auto served = of_.adapters().find(each.first);
        return each.second.is_due && (!served || served->version < each.second.version);
    });
    return count == 0 ? ""
                      : tensafe::text_of({count, " of ", heard_->listed.size(),
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
