// Seconds of one step of instances that share their feed-forward weights (SiDP, sections 4.2 and
// 4.3), from the roofline of scheduler/simulator/formations/step_time.h. An instance is the
// profile's base_devices, in TP over them.
//
//   full weights  StepTime
//   WaS           the same while the weights of other owners are read (weight_fetch.h)
//   CaS           all ranks layer by layer together: attention at each, rows to the layer's owner,
//                 one product over all rows there, results back
//
// Not modelled: that reads of weights take bandwidth from the memory and from TP's collectives, and
// the hiding of rows' transfers behind attention.
#pragma once

#include <cstdint>
#include <map>
#include <tuple>
#include <vector>

#include "scheduler/simulator/offline/offline_profile.h"

namespace skein::scheduler {

// `sequences` in decode that each read `context` tokens of KV.
StepWork DecodeWork(int64_t sequences, int64_t context);

// The time of a step with all weights, split at the feed-forward networks.
struct SplitStep {
  double feed_forward_s = 0;  // of all layers
  double attention_s = 0;     // of all layers: what else a layer does
  double outside_s = 0;       // the head and the software
  double Total() const { return feed_forward_s + attention_s + outside_s; }
};
// REQUIRES work.tokens > 0.
SplitStep SplitOf(const OfflineProfile& profile, const StepWork& work);

class SharedSteps {
 public:
  struct Options {
    int64_t ranks = 2;
    bool peak_shifting = true;
    // WaS's lower bound: slots are never short, and no two ranks read from one owner at a time. A
    // step takes the longer of its computation and of all its reads.
    bool unhindered = false;
  };
  // REQUIRES CheckOfflineProfile(profile).ok(), ranks >= 1.
  SharedSteps(OfflineProfile profile, Options options) : profile_(profile), options_(options) {}

  double FullSeconds(const StepWork& work) const { return SplitOf(profile_, work).Total(); }
  // Of one rank, while all ranks do likewise. At least FullSeconds; equal with one rank. Simulated
  // for times of layers in steps of 2 %, so it is exact to about 1 %.
  double WasSeconds(const StepWork& work);

  // What CaS saves step by step (section 5.4).
  enum class Cas { kUnfused, kFused, kSkipDummies };  // V1, V2, V3
  // Of all ranks together; [ranks], work without tokens is a rank's that has none. With one rank
  // FullSeconds. REQUIRES at least one rank with tokens.
  double CasSeconds(const std::vector<StepWork>& work, Cas cas = Cas::kSkipDummies) const;
  // Fully sharded (FSDP): all ranks gather each layer's weights at the same time, before they
  // compute it.
  double GatheredSeconds(const StepWork& work) const;

  // Section 4.3: the smallest batch at which WaS is not slower than CaS, all ranks having the same
  // batch of sequences in decode with `context` tokens each; 1 if it never is slower, kNoThreshold
  // if it is slower up to that.
  static constexpr int64_t kNoThreshold = 4096;
  int64_t Threshold(int64_t context);

  const OfflineProfile& profile() const { return profile_; }
  int64_t ranks() const { return options_.ranks; }
  double LayerFetchSeconds() const;  // of one layer by one reader of its owner
  double AllFetchSeconds() const;    // of all layers that a rank does not own

 private:
  bool IsWasSlower(int64_t batch, int64_t context);
  double HopSeconds(int64_t rows) const;

  const OfflineProfile profile_;
  const Options options_;
  // By the logarithms of the layer's two parts and of outside_s, over the fetch's time: WaS over
  // full weights.
  std::map<std::tuple<int64_t, int64_t, int64_t>, double> ratios_;
};

}  // namespace skein::scheduler
