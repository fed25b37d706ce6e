// The duration of one step of an aggregated instance group, prompts and decode in one batch, from
// the peaks of its devices: a roofline. No table of step times is published for the systems that
// bench/formations compares with, so a profile holds peaks (each with its source) and a few fitted
// numbers; its residuals at the papers' points are in bench/formations/README.md.
//
//   products     the larger of the time to compute them and the time to read the weights
//   attention    computing it for prompts, plus reading the KV of what decodes
//   collectives  TP: two all-reduces a layer; SP (Ulysses): two all-to-alls a layer
//   software     a constant a step, plus a part for each sequence of the batch
//
// They do not overlap.
#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace skein::scheduler {

struct StepProfile {
  std::string name;
  std::string model;
  std::string device;
  // Devices of one instance. Alone, it runs the model in TP over them, because it does not fit
  // fewer.
  int64_t base_devices = 1;

  struct Model {
    int64_t layers = 1;
    int64_t hidden = 1;
    int64_t heads = 1;
    int64_t kv_heads = 1;
    int64_t head_dim = 1;
    int64_t intermediate = 1;
    int64_t vocabulary = 1;
    double bytes_per_weight = 2;
    double bytes_per_kv_value = 2;
  } shape;

  struct Peaks {                       // of one device
    double flops_per_s = 0;            // of products in the weights' type, dense
    double attention_flops_per_s = 0;  // in the type of the KV
    double hbm_bytes_per_s = 0;
    double link_bytes_per_s = 0;  // one direction
    double usable_bytes = 0;      // of HBM, for weights and KV
  } peaks;

  struct Fitted {
    double compute_share = 1;    // of flops_per_s that products reach
    double attention_share = 1;  // of attention_flops_per_s
    double hbm_share = 1;
    double link_share = 1;    // may be above 1: NVLS adds up in the switch, a ring does not
    double collective_s = 0;  // of one, without bytes
    double step_s = 0;        // software
    double sequence_s = 0;    // software, for each sequence of the batch
  } fitted;

  double WeightCount() const;  // of products, without the embedding
  double WeightBytes() const;  // all, of one copy
  double KvBytesPerToken() const;
  // Tokens of one request, or of all, that `instances` instances bound together hold beside
  // `copies` of the weights: as many as instances, where they may be released again; 1 in a static
  // TP over all. 0: the weights do not fit.
  int64_t KvTokens(int64_t instances, int64_t copies) const;
};

// INVALID_ARGUMENT names the field that is not finite, not positive, or above its limit.
absl::Status CheckStepProfile(const StepProfile& profile);

// How a step is computed: on sp x tp devices.
struct StepLayout {
  int64_t sp = 1;
  int64_t tp = 1;
};
// Of `instances` instances bound together. In SP each of them computes a part of the tokens, in TP
// over its own devices.
inline StepLayout TpLayout(const StepProfile& profile, int64_t instances) {
  return {1, instances * profile.base_devices};
}
inline StepLayout SpLayout(const StepProfile& profile, int64_t instances) {
  return {instances, profile.base_devices};
}

struct StepWork {
  int64_t tokens = 0;     // of prompts and of decode
  int64_t sequences = 0;  // in the batch
  // Of prompts: for each token the tokens that it attends to, in total.
  double prompt_pairs = 0;
  int64_t decode_context = 0;  // tokens of KV that sequences in decode read

  // A prompt's next `slice` tokens after `history`.
  void AddPrompt(int64_t history, int64_t slice) {
    tokens += slice;
    ++sequences;
    prompt_pairs += static_cast<double>(slice) *
                    (static_cast<double>(history) + static_cast<double>(slice + 1) / 2);
  }
  void AddDecode(int64_t context) {
    ++tokens;
    ++sequences;
    decode_context += context;
  }
};

struct StepParts {
  double products_s = 0;
  double attention_s = 0;
  double collectives_s = 0;
  double software_s = 0;
  double Total() const { return products_s + attention_s + collectives_s + software_s; }
  void Add(const StepParts& more) {
    products_s += more.products_s;
    attention_s += more.attention_s;
    collectives_s += more.collectives_s;
    software_s += more.software_s;
  }
};
// REQUIRES CheckStepProfile(profile).ok(), work.tokens > 0.
StepParts StepTime(const StepProfile& profile, const StepLayout& layout, const StepWork& work);

// Shift Parallelism, algorithm 3: the most tokens of a step for which full TP is not slower than
// SP, found in the model as skeinctl profile finds it on a device; the tokens are of prompts
// without history. kNoShift: TP is faster up to 2^20 tokens. REQUIRES instances >= 2.
inline constexpr int64_t kNoShift = int64_t{1} << 20;
int64_t ShiftTokens(const StepProfile& profile, int64_t instances);

// How many times as fast as one instance `instances` bound ones decode one sequence of 2,048
// tokens, in TP (FormationSize::gain).
double BindGain(const StepProfile& profile, int64_t instances);

}  // namespace skein::scheduler
