// What the tests of Communicators do with one, on every rank at once (TestingRanks::Run). DATA_LOSS
// names what came out wrong.
#pragma once

#include <vector>

#include "absl/status/status.h"
#include "engine/comm/communicator.h"

namespace skein::engine {

// DATA_LOSS `what`, if not.
absl::Status Expect(bool condition, const char* what);

// Of TestingRanks::Run.
void ExpectOk(const std::vector<absl::Status>& ends);

// Of every type and of all sizes, from none to several pieces, with the bits that must come out.
absl::Status CheckAllReduce(Communicator* comm);
absl::Status CheckAllToAll(Communicator* comm);
absl::Status CheckRing(Communicator* comm);
absl::Status CheckBroadcast(Communicator* comm);
absl::Status CheckEverything(Communicator* comm);
// As CheckEverything, with less of it: messages that go at once and ones that are offered first.
// For tests of which ranks meet, when it is not about what they carry.
absl::Status CheckEveryKind(Communicator* comm);

// One small call of each kind, for what goes wrong: no rank's is OK before every other has called.
absl::Status CallOnce(int kind, Communicator* comm, CommDeadline deadline);
inline constexpr int kKinds = 6;

// Every later call fails at once, however far its deadline.
absl::Status CheckBroken(Communicator* comm);

}  // namespace skein::engine
