// A random model that takes no time: its checkpoint, workers that serve it or an emulated one, and
// an instance alone that says what every answer must be. For tests of groups.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/base/dtype.h"
#include "engine/engine.h"
#include "engine/sampling/sampling_params.h"
#include "engine/stepping/step_engine.h"
#include "scheduler/base/request.h"
#include "services/worker/process/worker_options.h"

namespace skein::services::testing {

inline constexpr int kTinyVocabulary = 203;
inline constexpr int kTinyBlockTokens = 4;
inline constexpr int kTinyKvHeads = 4;  // of the model on CPUs

// The dense layers' sizes, of the hidden state and of the feed-forward's middle; and the type of
// the weights, and so of the KV.
struct TinyDense {
  int hidden = 72, intermediate = 172;
  engine::DType dtype = engine::DType::kBF16;
};
// Writes a Llama of 2 layers with 8 heads and kTinyKvHeads KV heads under the test's temporary
// folder; returns its folder.
std::string WriteTinyModel(const std::string& name, const TinyDense& dense = {});

// Request {1, serial} of "m". Every other one is greedy; all ask for the logprobs of what they
// sample.
scheduler::SpecPtr TinyRequest(uint64_t serial, int64_t prompt_tokens, int64_t max_tokens);

// Of a worker whose device is "cpu" (the model in `dir`) or "emulated" (8 KV heads), with so many
// blocks.
WorkerOptions TinyWorkerOptions(const std::string& device, const std::string& dir, int blocks);

// An instance alone. One thread.
class Oracle {
 public:
  virtual ~Oracle() = default;
  // What it samples for the request, to its max_tokens.
  virtual std::vector<engine::SampledToken> AnswerTo(const scheduler::RequestSpec& spec) = 0;
  // The negative log-likelihood of `output` after the prompt, forced, in nats; all in one step.
  virtual double NllOf(const scheduler::RequestSpec& spec, const std::vector<int32_t>& output) = 0;
};

// Of TinyWorkerOptions' device.
std::unique_ptr<Oracle> MakeTinyOracle(const std::string& device, const std::string& dir);

// The model of MakeTinyOracle("cpu"), with the KV that it computes.
class TinyModelAlone final : public Oracle {
 public:
  explicit TinyModelAlone(const std::string& dir);

  std::vector<engine::SampledToken> AnswerTo(const scheduler::RequestSpec& spec) override;
  double NllOf(const scheduler::RequestSpec& spec, const std::vector<int32_t>& output) override;
  std::vector<int32_t> TokensOf(const scheduler::RequestSpec& spec);
  // Computes the prompt, into the blocks 0, 1, …
  int32_t FirstToken(const scheduler::RequestSpec& spec);
  // Copies the first of its blocks into these of another engine, as a handoff does.
  void CopyKv(const std::vector<int32_t>& blocks, const engine::StepEngine& to) const;

 private:
  engine::SampledToken Run(const scheduler::RequestSpec& spec, const std::vector<int32_t>& tokens,
                           const std::vector<int32_t>& output);

  std::unique_ptr<engine::Engine> engine_;
  std::vector<int32_t> table_;
};

}  // namespace skein::services::testing
