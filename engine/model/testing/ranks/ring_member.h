// One rank of prompts that are run in ring steps, for tests: an engine and where the prompt's
// blocks lie in its pool.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "engine/comm/communicator.h"
#include "engine/device/device.h"
#include "engine/engine.h"
#include "engine/model/testing/ranks/prompt_dealer.h"

namespace skein::engine {

// A rank's communicators of one piece, as in RingStep. Null, null when it is alone.
struct RingGroups {
  Communicator* comm = nullptr;
  Communicator* moves = nullptr;
  Communicator* tensor = nullptr;
  int tp = 1;
};

class RingMember {
 public:
  // `engine` outlives this; so does the `device` of its KV, null for memory that the host or
  // NearOfAny reaches.
  explicit RingMember(Engine* engine, Device* device = nullptr)
      : engine_(engine), device_(device) {}

  // A new prompt: KV that nobody wrote is NaN, block ids are dealt at random.
  void Start(const std::vector<int32_t>& ids, bool score, uint32_t seed);

  // Runs its part of `piece` as rank `rank`. `layer_queued`: as StepProgress's, with it; may be
  // null.
  absl::Status Run(const DealtPiece& piece, size_t rank, const RingGroups& groups,
                   CommDeadline deadline,
                   const std::function<void(int, StepProgress&)>& layer_queued);

  // Logprob of ids[position + 1] after ids[0 … position], of its own tokens so far.
  const std::map<int64_t, double>& logprobs() const { return logprobs_; }
  // Greedy, after the whole prompt; -1 at all ranks but the last token's.
  int32_t token() const { return token_; }
  // The prompt's blocks that it computed, and where.
  const std::map<int32_t, int32_t>& computed() const { return computed_; }
  // Where its copy of a block of the prompt is, or will be.
  int32_t LocalOf(int32_t block);
  Engine& engine() const { return *engine_; }
  // The bytes of a block of its pool.
  std::string ReadBlock(size_t layer, int32_t local) const;

 private:
  struct Input;
  void Fill(const DealtPiece& piece, size_t rank, Input* input);
  void Collect(const Input& input, const std::vector<SequenceResult>& results);

  Engine* engine_;
  Device* device_;
  std::vector<int32_t> ids_;
  bool score_ = true;
  std::vector<int32_t> free_;
  std::map<int32_t, int32_t> local_, computed_;
  std::map<int64_t, double> logprobs_;
  int32_t token_ = -1;
};

// Fills all KV with NaN. `device` as above.
void SpoilKv(Engine& engine, Device* device = nullptr);

}  // namespace skein::engine
