// The fixture of the conformance suite, of every fabric whose ranks may be threads.
#pragma once

#include <gtest/gtest.h>

#include "engine/comm/testing_ranks.h"

namespace skein::engine {

// The parameter names a fabric: Local, Faultless (the same behind a FaultCommunicator that has
// nothing to inject), UcxSharedMemory, UcxTcp, FarStaged, FarOnDevice and FarPeers (in a device's
// memory, testing_far_fabric.h), FarPaths (a PathFabric's groups over FarPeers) and FarPathsRefused
// (every other rank may not open the others' memory).
class CommConformance : public testing::TestWithParam<const char*> {
 protected:
  CommConformance();

  // The ranks but `lost` make a group, and it works.
  static void ExpectSurvivorsWork(TestingRanks* ranks, int lost);

  const FabricFactory factory_;
};

}  // namespace skein::engine
