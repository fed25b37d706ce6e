// Samplers: rows of logits sampled on all of the host's threads, each with a Sampler of its own. A
// row's token does not depend on the thread that samples it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <vector>

#include "engine/base/thread_pool.h"
#include "engine/sampling/sampler.h"

namespace skein::engine {

class Samplers {
 public:
  // `threads` outlives this; null: the caller's thread samples alone.
  Samplers(int vocab_size, ThreadPool* threads);

  // Calls body(row, sampler) once for each row of [0, rows), on several threads at once; returns
  // when all have returned. REQUIRES: nobody else uses `threads` meanwhile.
  void ForRows(int64_t rows, const std::function<void(int64_t row, Sampler& sampler)>& body);

  // Threads that have sampled so far.
  int used() const;

 private:
  Sampler& Of(int thread);

  const int vocab_size_;
  ThreadPool* const threads_;
  std::vector<std::unique_ptr<Sampler>> samplers_;  // by thread, made at first use
};

}  // namespace skein::engine
