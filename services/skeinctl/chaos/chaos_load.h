// Many streams at a time: as soon as one has ended, its client sends the next request. Runs on a
// thread of its own.
//
// A client tries the next router when one refuses its connection or answers 503, as a load balancer
// does; it fails when all of them have.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "services/skeinctl/bench/target.h"
#include "services/skeinctl/chaos/stream_record.h"

namespace skein::services::chaos {

struct LoadOptions {
  std::vector<bench::Url> routers;
  std::string model;
  std::string api_key;  // empty: none
  std::vector<StreamRequest> requests;
  int64_t streams = 1;                          // at a time
  std::chrono::milliseconds hung_after{1'000};  // from the sending of a request
};

// The index of the only one of `routers` at this HOST:PORT, or else at this port; -1: none, or
// several. Pure.
int64_t RouterAmong(const std::vector<bench::Url>& routers, const std::string& endpoint);

class ChaosLoad {
 public:
  explicit ChaosLoad(LoadOptions options);
  ~ChaosLoad();  // ends what runs
  ChaosLoad(const ChaosLoad&) = delete;
  ChaosLoad& operator=(const ChaosLoad&) = delete;

  // UNAVAILABLE names a router whose host name cannot be resolved.
  absl::Status Open();

  // Sends another request in the place of this one from now on. Not between Start and Stop.
  void Replace(size_t index, StreamRequest request);
  // Blocks. The whole answer to one request while nothing else runs. INVALID_ARGUMENT: the server
  // refused it with 400. UNAVAILABLE: it failed.
  absl::StatusOr<StreamRecord> Alone(size_t request);
  // Blocks. The body of the answer to a POST. UNAVAILABLE: no router answered with 200.
  absl::StatusOr<std::string> Post(const std::string& path, const std::string& body);

  // The index of the router that listens at HOST:PORT, in whatever way its host is written; -1:
  // none of the load's, or not to be told.
  int64_t RouterAt(const std::string& endpoint) const;

  // Sends until Stop. The clock begins at 0.
  void Start();
  double NowS() const;
  // Streams that have tokens and have not ended, and answers under way that are not streamed.
  int64_t Running() const;
  // Sends new requests because of the fault of this index: `chains` at once, and each again until
  // one of its chain has a first token.
  void Probe(int64_t fault, int64_t chains);
  // Whether every chain of every fault so far has had a first token.
  bool ProbesAnswered() const;
  // No more requests are sent; waits until those that run have ended, or hang. Returns all since
  // Start.
  std::vector<StreamRecord> Stop();

 private:
  class Loop;

  std::unique_ptr<Loop> loop_;
  std::thread thread_;
};

}  // namespace skein::services::chaos
