#include "limits.hpp"

#include <tensafe/core/text.hpp>
#include <tensafe/keystore/sha256.hpp>

#include <algorithm>
#include <arpa/inet.h>
#include <cmath>
#include <span>

namespace split {

std::optional<share_limit> share_of(std::string_view text) {
    const auto read = tensafe::number_of<double>(text);
    if (text != "none" && !(read && *read > 0 && *read <= 1000)) {
        return std::nullopt;
    }
    return share_limit(read);
}

std::string text_of_share(const share_limit& share) {
    return share ? tensafe::shortest_text(*share) : "none";
}

rate_limiter::rate_limiter(double per_second, double at_once, std::size_t most_names)
    : per_second_(per_second),
      at_once_(std::max(at_once, 1.0)),
      most_names_(most_names),
      shared_{at_once_, {}} {}

void rate_limiter::refill(bucket& b, time_point now) const noexcept {
    if (now > b.at) {
        const double seconds = std::chrono::duration<double>(now - b.at).count();
        b.left = std::min(at_once_, b.left + seconds * per_second_);
        b.at = now;
    }
}

rate_limiter::bucket& rate_limiter::bucket_of(std::string_view name, time_point now) {
    auto known = buckets_.find(name);
    const auto is_full = [&] { return known == buckets_.end() && buckets_.size() >= most_names_; };
    // Not more often than once a second: it is a walk through all of them.
    if (is_full() && (!swept_ || now - *swept_ >= std::chrono::seconds(1))) {
        swept_ = now;
        drop_full(now);
    }
    if (known == buckets_.end() && !is_full()) {
        known = buckets_.emplace(std::string(name), bucket{at_once_, now}).first;
    }
    bucket& b = known == buckets_.end() ? shared_ : known->second;
    refill(b, now);
    return b;
}

std::chrono::milliseconds rate_limiter::take(std::string_view name, time_point now) {
    const std::lock_guard lock(mutex_);
    bucket& b = bucket_of(name, now);
    if (b.left >= 1) {
        b.left -= 1;
        b.untold += 1;
        return std::chrono::milliseconds(0);
    }
    constexpr double longest = 86'400'000;
    return std::chrono::milliseconds(
        static_cast<long>(std::clamp(std::ceil((1 - b.left) / per_second_ * 1000), 1.0, longest)));
}

void rate_limiter::pay(std::string_view name, double more, time_point now) {
    const std::lock_guard lock(mutex_);
    bucket& b = bucket_of(name, now);
    const double before = std::exchange(b.left, std::min(at_once_, b.left - more));
    b.untold += before - b.left;
}

void rate_limiter::share(const shared_buckets& buckets, std::string_view limit, time_point now) {
    std::vector<std::pair<std::string, double>> all;
    std::unique_lock lock(mutex_);
    const auto before = std::exchange(shared_at_, now);
    const double seconds = before == time_point() ? 0 : std::chrono::duration<double>(now - before).count();
    for (auto& [name, b] : buckets_) {
        if (std::abs(b.untold) >= at_once_ / 16) {
            all.emplace_back(name, std::exchange(b.untold, 0));
        } else if (b.untold > 0) {
            b.untold = std::max(0.0, b.untold - seconds * per_second_ / 16);
        }
    }
    lock.unlock();
    constexpr std::size_t at_a_time = 1'000;  // a few milliseconds
    for (std::span<const std::pair<std::string, double>> rest = all; !rest.empty();) {
        const auto some = rest.first(std::min(rest.size(), at_a_time));
        rest = rest.subspan(some.size());
        const std::vector<double> lacks = buckets(limit, per_second_, some);
        lock.lock();
        for (std::size_t i = 0; i < some.size(); ++i) {
            if (bucket& b = bucket_of(some[i].first, now); &b != &shared_) {
                // What was told was taken up to a second ago, and they refill only since they hear of it.
                const double refilled = std::min(seconds, 1.0) * per_second_;
                b.left = std::min(b.left, at_once_ - std::max(0.0, lacks[i] - refilled) - b.untold);
            }
        }
        lock.unlock();
    }
}

void rate_limiter::drop_full(time_point now) {
    std::erase_if(buckets_, [&](const auto& each) {
        bucket full = each.second;
        refill(full, now);
        return full.left >= at_once_ && (shared_at_ == time_point() || full.untold <= 0);
    });
}

void rate_limiter::sweep(time_point now) {
    const std::lock_guard lock(mutex_);
    drop_full(now);
}

std::size_t rate_limiter::names() const {
    const std::lock_guard lock(mutex_);
    return buckets_.size();
}

bool is_address(const std::string& text) {
    in6_addr ignored{};
    return ::inet_pton(AF_INET, text.c_str(), &ignored) == 1 ||
           ::inet_pton(AF_INET6, text.c_str(), &ignored) == 1;
}

std::string limited_address(const std::string& address) {
    in6_addr v6{};
    const std::string plain = address.substr(0, address.find('%'));  // without the interface
    if (::inet_pton(AF_INET6, plain.c_str(), &v6) != 1) {
        return address;
    }
    if (IN6_IS_ADDR_V4MAPPED(&v6)) {
        std::array<char, INET_ADDRSTRLEN> text{};
        return ::inet_ntop(AF_INET, &v6.s6_addr[12], text.data(), text.size());
    }
    return tensafe::keystore::hex(std::as_bytes(std::span(v6.s6_addr).first<8>())) + "/64";
}

}  // namespace split
