#pragma once

#include <tensafe/memory/buffer.hpp>
#include <tensafe/serving/request.hpp>
#include <tensafe/session/client_session.hpp>

#include <algorithm>
#include <cstddef>
#include <span>
#include <utility>
#include <vector>

namespace tensafe::serving {

/// Answers calls with an engine of batches, for session::sequences: all that wait go to it at once. The
/// engine outlives it. Keeps its memory from batch to batch; answers in it are wiped on release.
template <request_engine Engine>
class engine_answers {
  public:
    explicit engine_answers(Engine& engine) : engine_(engine) {
        for (std::size_t g = 0; g < engine.groups(); ++g) {
            most_rows_ = std::max<std::size_t>(most_rows_, engine.rows(g));
        }
    }

    /// Answers all calls with one run of the engine.
    /// @param calls  of one row each
    template <class Over>
    void answer(std::span<session::call* const> calls, Over&& next_is_over) {
        if (answers_.size() < calls.size() * most_rows_) {
            answers_ = memory::secret_buffer<double>(calls.size() * most_rows_);
        }
        batch_.clear();
        for (std::size_t i = 0; i < calls.size(); ++i) {
            const std::size_t g = calls[i]->group();
            const std::size_t rows = g < engine_.groups() ? engine_.rows(g) : 0;
            batch_.push_back({g, calls[i]->row(0), answers_.span().subspan(i * most_rows_, rows), nullptr});
        }
        engine_.run(std::span<request>(batch_));
        for (std::size_t i = 0; i < calls.size(); ++i) {
            if (batch_[i].error != nullptr) {
                calls[i]->fail(std::exchange(batch_[i].error, nullptr));
            } else {
                calls[i]->answer(0, batch_[i].answers);
            }
            next_is_over();
        }
    }
    static bool work_ahead() noexcept { return false; }

  private:
    Engine& engine_;
    std::size_t most_rows_ = 0;
    std::vector<request> batch_;
    memory::secret_buffer<double> answers_;
};

}  // namespace tensafe::serving
