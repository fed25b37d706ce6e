#include "scheduler/simulator/pipeline_run.h"

#include <algorithm>
#include <numeric>

#include "scheduler/vocabulary/check.h"

namespace skein::scheduler {
namespace {

PipelineOptions EvenStages(int stages) {
  SKEIN_CHECK(stages >= 1);
  PipelineOptions options;
  options.shares.assign(static_cast<size_t>(stages), 1.0 / stages);
  return options;
}

// The most tokens, at most `most`, whose time does not exceed that of the first slice.
int64_t AsLongAsTheFirst(int64_t history, int64_t most, double first_s,
                         const SliceSeconds& seconds) {
  int64_t low = 0;
  int64_t high = most;
  while (low < high) {
    const int64_t middle = low + (high - low + 1) / 2;
    if (seconds(history, middle) <= first_s) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

class Pipeline {
 public:
  Pipeline(int first_instance, const PipelineOptions& options, const SliceSeconds& seconds)
      : options_(options), seconds_(seconds), free_s_(options.shares.size(), 0) {
    instances_.resize(options.shares.size());
    std::iota(instances_.begin(), instances_.end(), first_instance);
  }

  double FreeAt() const { return free_s_.front(); }

  PrefillOutcome Run(size_t number, const SimRequest& request, PrefillRun* run,
                     const ChunkObserver& observer) {
    PrefillOutcome outcome{std::max(request.arrival_s, FreeAt()), 0};
    int64_t history = 0;
    for (const int64_t tokens : PipelineSlices(request.prompt_tokens, options_, seconds_)) {
      const double whole_s = seconds_(history, tokens);
      double end_s = request.arrival_s;
      const double start_s = std::max(end_s, FreeAt());
      for (size_t stage = 0; stage < free_s_.size(); ++stage) {
        end_s = std::max(end_s, free_s_[stage]) + options_.shares[stage] * whole_s;
        free_s_[stage] = end_s;
      }
      run->busy_instance_s += whole_s;
      ++run->chunks;
      if (observer) observer(number, {tokens, instances_, start_s, end_s});
      history += tokens;
      outcome.end_s = end_s;
    }
    run->end_s = std::max(run->end_s, outcome.end_s);
    return outcome;
  }

 private:
  const PipelineOptions& options_;
  const SliceSeconds& seconds_;
  std::vector<int> instances_;
  std::vector<double> free_s_;  // by stage
};

}  // namespace

PipelineOptions PipelineOptions::Fixed(int stages) { return EvenStages(stages); }

PipelineOptions PipelineOptions::Dynamic(int stages) {
  PipelineOptions options = EvenStages(stages);
  options.slice_tokens = 12288;
  options.smooth = 0.65;
  return options;
}

std::vector<int64_t> PipelineSlices(int64_t prompt_tokens, const PipelineOptions& options,
                                    const SliceSeconds& seconds) {
  std::vector<int64_t> slices;
  const int64_t first = options.slice_tokens;
  const double first_s = seconds(0, first);
  for (int64_t history = 0; history < prompt_tokens; history += slices.back()) {
    int64_t tokens = first;
    if (options.smooth > 0 && history > 0) {
      const int64_t even = AsLongAsTheFirst(history, first, first_s, seconds);
      tokens = first + static_cast<int64_t>(options.smooth * static_cast<double>(even - first));
      tokens = std::max(tokens, first / 4) / options.multiple * options.multiple;
      tokens = std::max(tokens, options.multiple);
    }
    slices.push_back(std::min(tokens, prompt_tokens - history));
  }
  return slices;
}

PrefillRun RunPipelines(const std::vector<SimRequest>& requests, int instances,
                        const PipelineOptions& options, const SliceSeconds& seconds,
                        const ChunkObserver& observer) {
  const int stages = static_cast<int>(options.shares.size());
  SKEIN_CHECK(stages >= 1 && instances >= stages);
  std::vector<Pipeline> pipelines;
  for (int first = 0; first + stages <= instances; first += stages) {
    pipelines.emplace_back(first, options, seconds);
  }
  PrefillRun run;
  run.outcomes.reserve(requests.size());
  for (size_t r = 0; r < requests.size(); ++r) {
    const auto soonest = std::min_element(
        pipelines.begin(), pipelines.end(),
        [](const Pipeline& a, const Pipeline& b) { return a.FreeAt() < b.FreeAt(); });
    run.outcomes.push_back(soonest->Run(r, requests[r], &run, observer));
  }
  return run;
}

}  // namespace skein::scheduler
