#include "engine/sampling/samplers.h"

#include <algorithm>
#include <atomic>

namespace skein::engine {

Samplers::Samplers(int vocab_size, ThreadPool* threads)
    : vocab_size_(vocab_size),
      threads_(threads),
      samplers_(threads == nullptr ? 1 : static_cast<size_t>(threads->threads())) {}

Sampler& Samplers::Of(int thread) {
  std::unique_ptr<Sampler>& sampler = samplers_[static_cast<size_t>(thread)];
  if (sampler == nullptr) sampler = std::make_unique<Sampler>(vocab_size_);
  return *sampler;
}

void Samplers::ForRows(int64_t rows, const std::function<void(int64_t, Sampler&)>& body) {
  if (threads_ == nullptr || rows <= 1) {
    for (int64_t row = 0; row < rows; ++row) body(row, Of(0));
    return;
  }
  // Rows differ in cost: who is done takes the next.
  std::atomic<int64_t> next{0};
  threads_->RunOnEach([&](int thread) {
    for (int64_t row = next++; row < rows; row = next++) body(row, Of(thread));
  });
}

int Samplers::used() const {
  return static_cast<int>(std::count_if(samplers_.begin(), samplers_.end(),
                                        [](const auto& s) { return s != nullptr; }));
}

}  // namespace skein::engine
