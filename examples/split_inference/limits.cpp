#include "limits.hpp"

#include <algorithm>
#include <cmath>

namespace split {

std::optional<std::uint64_t> limits::queries_for(std::size_t d) const noexcept {
    if (unlimited_queries) {
        return std::nullopt;
    }
    return queries ? *queries : std::max<std::uint64_t>(d / 4, 1);
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
    const auto known = buckets_.find(name);
    if (known != buckets_.end()) {
        return known->second;
    }
    // Who waited long enough has a full bucket, as one who never came. Not more often than once a second: it
    // is a walk through all of them.
    if (buckets_.size() >= most_names_ && (!swept_ || now - *swept_ >= std::chrono::seconds(1))) {
        swept_ = now;
        std::erase_if(buckets_, [&](const auto& each) {
            bucket full = each.second;
            refill(full, now);
            return full.left >= at_once_;
        });
    }
    if (buckets_.size() >= most_names_) {
        return shared_;
    }
    return buckets_.emplace(std::string(name), bucket{at_once_, now}).first->second;
}

std::chrono::milliseconds rate_limiter::take(std::string_view name, time_point now) {
    if (std::isinf(per_second_)) {
        return std::chrono::milliseconds(0);
    }
    const std::lock_guard lock(mutex_);
    bucket& b = bucket_of(name, now);
    refill(b, now);
    if (b.left >= 1) {
        b.left -= 1;
        return std::chrono::milliseconds(0);
    }
    constexpr double longest = 86'400'000;
    return std::chrono::milliseconds(
        static_cast<long>(std::clamp(std::ceil((1 - b.left) / per_second_ * 1000), 1.0, longest)));
}

void rate_limiter::forget(std::string_view name) {
    const std::lock_guard lock(mutex_);
    if (const auto known = buckets_.find(name); known != buckets_.end()) {
        buckets_.erase(known);
    }
}

std::size_t rate_limiter::names() const {
    const std::lock_guard lock(mutex_);
    return buckets_.size();
}

}  // namespace split
