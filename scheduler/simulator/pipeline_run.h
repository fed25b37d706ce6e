// Chunked pipeline parallelism as SGLang has it (lmsys.org/blog/2026-01-15-chunked-pipeline): a
// baseline for prompts. Each stage holds a share of the layers. A prompt goes through the stages in
// slices; while a stage computes one, the stage before it computes the next. Within a stage all
// devices work on a slice together (TP), which the time of a slice contains.
//
// Modelled: slices of a fixed size, or SGLang's dynamic ones, which shrink as the history grows;
// stages that wait for the slice before (bubbles); layers that do not divide evenly; the next
// prompt, whose first slice follows the last one of the prompt before. Not modelled: the transfer
// between stages, which SGLang overlaps with computing; a limit of slices in flight; the host's
// time for a step beyond the profile's constant; memory.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "scheduler/simulator/prefill_run.h"
#include "scheduler/simulator/workload.h"

namespace skein::scheduler {

// The time of a slice after `history_tokens` on all layers, on the devices of one stage. Grows with
// the tokens.
using SliceSeconds = std::function<double(int64_t history_tokens, int64_t tokens)>;

struct PipelineOptions {
  std::vector<double> shares;   // of the layers, by stage; positive, their sum is 1
  int64_t slice_tokens = 4096;  // of the first slice; of all if `smooth` is 0
  // 0 ... 1: how far the size follows that with which each slice would take as long as the first.
  double smooth = 0;
  int64_t multiple = 64;  // sizes are multiples of it, but for the last slice

  // As SGLang's examples for a prompt of 128K tokens: fixed slices of 4,096 tokens; dynamic ones
  // that begin with 12,288 and a smooth factor of 0.65.
  static PipelineOptions Fixed(int stages);
  static PipelineOptions Dynamic(int stages);
};

// The slices of a prompt, in order. With `smooth` s the next one has
//   slice_tokens + s (n - slice_tokens)
// tokens, where n takes the time of the first slice; at least a fourth of slice_tokens; rounded
// down to the multiple. REQUIRES prompt_tokens > 0.
std::vector<int64_t> PipelineSlices(int64_t prompt_tokens, const PipelineOptions& options,
                                    const SliceSeconds& seconds);

// Each stage is one instance of the cluster, and as many pipelines as fit stand side by side;
// remaining instances stay unused. A prompt goes to the pipeline whose first stage is free first
// (the first of equals). The observer gets each slice as a chunk of all the pipeline's instances,
// from its start in the first stage to its end in the last; the slices of a prompt overlap.
// REQUIRES CheckWorkload(requests), at least as many instances as stages.
PrefillRun RunPipelines(const std::vector<SimRequest>& requests, int instances,
                        const PipelineOptions& options, const SliceSeconds& seconds,
                        const ChunkObserver& observer = nullptr);

}  // namespace skein::scheduler
