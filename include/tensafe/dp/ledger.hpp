#pragma once

#include <tensafe/core/error.hpp>
#include <tensafe/core/text.hpp>
#include <tensafe/dp/gaussian_mechanism.hpp>
#include <tensafe/dp/odometer.hpp>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

namespace tensafe::dp {

/// The whole state of a ledger: by principal, as bytes compare.
struct ledger_state {
    std::map<std::string, odometer, std::less<>> principals;

    friend bool operator==(const ledger_state&, const ledger_state&) = default;
};

/// Keeps the state of a ledger: dp::ledger_file, or your own. Called under the ledger's lock, by one
/// thread at a time.
class ledger_store {
  public:
    ledger_store() = default;
    ledger_store(const ledger_store&) = delete;
    ledger_store& operator=(const ledger_store&) = delete;
    virtual ~ledger_store() = default;

    /// Returns the state stored last; an empty one if there is none.
    virtual ledger_state load() = 0;
    /// Stores this state instead of the last one. If it throws, load() must still give the one before.
    virtual void replace(const ledger_state& state) = 0;
    /// Returns when the state stored last outlives a power failure. If it throws, either state may.
    virtual void confirm() = 0;
};

/// Keeps what each principal may still have released: a budget of (epsilon, delta) for each, and what was
/// spent of it. A principal is whoever the released states say something about, under a name that the caller
/// has authenticated: each new name comes with a new budget. For each principal a privacy filter (it stops at
/// the budget) and an odometer (it says what was spent): Rogers, Roth, Ullman, Vadhan, "Privacy odometers and
/// filters" (2016).
///
/// A charge is stored before anything is granted, so that no release is ever missing from the store,
/// whatever dies when. What is spent stays spent: for a charge that is destroyed unused, and for one that was
/// lost with its process. Nothing here takes a charge back. Budgets are the caller's and are not stored: with
/// a larger one more is left, with a smaller one less, of what was spent all the same.
///
/// Composition: squares of mu add up exactly, and so do slacks (release_cost). What is released may depend on
/// what earlier releases showed. Its cost may too, and for mu alone the promise is the same: the releases are
/// increments of one Brownian path, of drift 0 or 1, read no further than to time mu^2 of the whole budget
/// (Smith, Thakurta, "Fully adaptive composition for Gaussian differential privacy", arXiv 2210.17520). For
/// costs with slacks that were chosen so, it is (epsilon, delta + the sum of the slacks): about 2^-77 more
/// for each gaussian_release of d = 2048, but nearly twice delta where slacks are large and chosen for it.
///
/// Thread-safe by one lock, which is held while a charge is stored. Strong exception safety, but for
/// ledger_store::confirm: a charge whose fate is unknown counts as spent.
class ledger {
  public:
    using budget_map = std::map<std::string, privacy_budget, std::less<>>;

    /// The most principals of one ledger. Each charge stores all of them.
    static constexpr std::size_t most_principals = 10'000;
    static constexpr std::size_t longest_name = 128;  ///< bytes, as in serving::meter

    /// Opens a ledger with the state that the store has.
    /// @param each   the budget of every principal that is not named in `of`
    /// @param store  none: what is spent is forgotten with this object
    /// @param of     principals with a budget of their own
    /// @throws parameter_error for a budget or a name that is none; format_error for a state that no ledger
    ///         came to; what the store throws
    explicit ledger(const privacy_budget& each, std::unique_ptr<ledger_store> store = nullptr,
                    budget_map of = {})
        : each_(each), of_(std::move(of)), store_(std::move(store)) {
        each_.check();
        for (const auto& [name, budget] : of_) {
            check_principal("dp::ledger", name);
            budget.check();
        }
        if (store_ != nullptr) {
            state_ = store_->load();
        }
        check(state_);
    }
    ledger(const ledger&) = delete;
    ledger& operator=(const ledger&) = delete;
    ~ledger() = default;

    /// Whether this can be a principal's name: 1 to 128 bytes of UTF-8 without control characters.
    static constexpr bool is_principal(std::string_view name) noexcept {
        return !name.empty() && name.size() <= longest_name && is_printable_utf8(name);
    }

    /// Pays for releases, all of them or none. With dp::ledger_file it takes as long as forcing a file to the
    /// device, milliseconds: charge for many releases at once.
    /// @param releases  at least 1
    /// @returns the right to make them
    /// @throws budget_error, which says what was spent and what is left, if the principal's total would pass
    ///         its budget or there are too many principals; parameter_error for a name or a cost that is none
    ///         or no releases; what the store throws. Nothing is granted then, and nothing is spent, but for
    ///         an error of ledger_store::confirm
    [[nodiscard]] release_charge charge(std::string_view principal, const release_cost& cost,
                                        std::uint64_t releases = 1) {
        check_principal("dp::ledger::charge", principal);
        cost.check();
        require<parameter_error>(releases != 0, {"dp::ledger::charge: got 0 releases, expected at least 1"});
        const std::lock_guard lock(mutex_);
        const auto known = state_.principals.find(principal);
        const bool is_new = known == state_.principals.end();
        require<budget_error>(!is_new || state_.principals.size() < most_principals,
                              {"dp::ledger::charge: principal ", in_quotes(principal), ": got a ledger with ",
                               most_principals, " principals, which is the most; keep another one for more"});
        const odometer before = is_new ? odometer{} : known->second;
        const privacy_budget& budget = budget_of(principal);
        if (!allowed(before, cost, releases, budget)) {
            refuse(principal, before, cost, releases, budget);
        }
        const auto entry = is_new ? state_.principals.emplace(principal, before).first : known;
        entry->second = before.plus(cost, releases);
        if (store_ != nullptr) {
            try {
                store_->replace(state_);
            } catch (...) {
                if (is_new) {
                    state_.principals.erase(entry);
                } else {
                    entry->second = before;
                }
                throw;
            }
            store_->confirm();
        }
        return {cost, releases};
    }

    /// The most releases of this cost that charge would allow now. Cost: up to some 130 evaluations of delta.
    /// @throws parameter_error for a name or a cost that is none
    std::uint64_t left(std::string_view principal, const release_cost& cost) const {
        check_principal("dp::ledger::left", principal);
        cost.check();
        return left_of(spent(principal), cost, budget_of(principal));
    }

    /// The account of a principal; all 0 if it has spent nothing.
    odometer spent(std::string_view principal) const {
        const std::lock_guard lock(mutex_);
        const auto known = state_.principals.find(principal);
        return known == state_.principals.end() ? odometer{} : known->second;
    }

    /// The accounts of all principals, at one moment.
    ledger_state state() const {
        const std::lock_guard lock(mutex_);
        return state_;
    }

    /// The budget of a principal, in use or not.
    const privacy_budget& budget_of(std::string_view principal) const noexcept {
        const auto own = of_.find(principal);
        return own == of_.end() ? each_ : own->second;
    }

  private:
    static void check_principal(const char* what, std::string_view name) {
        if (!is_principal(name)) {
            const bool fits = !name.empty() && name.size() <= longest_name;
            throw parameter_error({what, ": principal: got a name of ", name.size(), " bytes",
                                   (fits ? " that cannot be printed" : ""), ", expected 1 to ", longest_name,
                                   " bytes of UTF-8 without control characters"});
        }
    }

    static void check(const ledger_state& state) {
        require<format_error>(state.principals.size() <= most_principals,
                              {"dp::ledger: got a stored state of ", state.principals.size(),
                               " principals, expected at most ", most_principals});
        for (const auto& [name, spent] : state.principals) {
            require<format_error>(is_principal(name), {"dp::ledger: got a stored state with a name of ",
                                                       name.size(), " bytes, expected 1 to ", longest_name,
                                                       " bytes of UTF-8 without control characters"});
            spent.check("dp::ledger: stored state of " + quote(name));
        }
    }

    static bool allowed(const odometer& before, const release_cost& cost, std::uint64_t releases,
                        const privacy_budget& budget) {
        // No budget allows what a number would not hold.
        constexpr double largest = 1e300;
        if (releases > std::numeric_limits<std::uint64_t>::max() - before.releases ||
            !(before.mu_squared + cost.mu * cost.mu * static_cast<double>(releases) <= largest)) {
            return false;
        }
        return before.plus(cost, releases).delta(budget.epsilon) <= budget.delta;
    }

    static std::uint64_t left_of(const odometer& before, const release_cost& cost,
                                 const privacy_budget& budget) {
        std::uint64_t yes = 0;
        std::uint64_t no = 1;
        while (allowed(before, cost, no, budget)) {
            yes = no;
            if (no > std::numeric_limits<std::uint64_t>::max() / 2) {
                break;
            }
            no *= 2;
        }
        if (yes == no) {
            no = std::numeric_limits<std::uint64_t>::max();
            if (allowed(before, cost, no, budget)) {
                return no;
            }
        }
        // What charge computes rises with the number but for rounding; whatever it does, yes is allowed.
        while (no - yes > 1) {
            const std::uint64_t middle = yes + (no - yes) / 2;
            (allowed(before, cost, middle, budget) ? yes : no) = middle;
        }
        return yes;
    }

    [[noreturn]] static void refuse(std::string_view principal, const odometer& before,
                                    const release_cost& cost, std::uint64_t releases,
                                    const privacy_budget& budget) {
        throw budget_error({"dp::ledger::charge: principal ", in_quotes(principal), ": got ", releases,
                            " releases, expected at most ", left_of(before, cost, budget),
                            " of this cost (mu ", cost.mu, "): ", before.releases,
                            " earlier ones have spent epsilon ", before.epsilon(budget.delta), " of ",
                            budget.epsilon, " at delta ", budget.delta, "; this charge spent nothing"});
    }

    privacy_budget each_;
    budget_map of_;
    mutable std::mutex mutex_;
    std::unique_ptr<ledger_store> store_;
    ledger_state state_;
};

}  // namespace tensafe::dp
