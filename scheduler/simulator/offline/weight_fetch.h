// How long a step takes while ranks read the feed-forward weights that they do not own from the
// owners (SiDP, section 4.2): Weight-as-a-Service. A simulation of all ranks' steps and reads, as
// fluids: layer l is owned by rank l mod ranks, each rank reads one layer at a time, and readers of
// the same owner share its link evenly. A read begins when the one before it has ended and a slot
// is free; a slot holds a layer, from the beginning of the read to the end of the product.
#pragma once

#include <cstdint>

namespace skein::scheduler {

struct FetchedStep {
  int64_t ranks = 2;
  int64_t layers = 1;
  // Of one rank's step, all ranks alike: of a layer what runs before its feed-forward network, and
  // that; and what is of no layer, at the beginning of the step.
  double attention_s = 0;
  double feed_forward_s = 0;
  double outside_s = 0;
  double fetch_s = 0;  // of one layer's weights by a reader that has the owner's link for itself
  // Section 4.2: ranks read the layers of a cycle of `ranks` layers in rotated order. Without it
  // all read in the order of the layers.
  bool peak_shifting = true;
  int64_t slots = 0;  // 0: ranks - 1, as the paper has

  double FullSeconds() const {
    return outside_s + static_cast<double>(layers) * (attention_s + feed_forward_s);
  }
};

// Mean seconds of a step, once the first has ended: All ranks begin at once.
// At least FullSeconds(). REQUIRES ranks, layers >= 1, slots 0 or
// at least ranks - 1, times not negative, FullSeconds() > 0.
double FetchedStepSeconds(const FetchedStep& step);

}  // namespace skein::scheduler
