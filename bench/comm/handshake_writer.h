// A prefill instance of handshake_bench: hands its share of a prompt to the target, with and
// without the messages of the handshake.
#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "bench/comm/handshake_target.h"
#include "bench/comm/staging.grpc.pb.h"
#include "engine/handoff/handoff_sender.h"
#include "proto/decode_worker.grpc.pb.h"
#include "services/rpc/rpc.h"
#include "services/worker/engine/progress_thread.h"

namespace skein::bench {

using Clock = std::chrono::steady_clock;

enum class HandshakeMode {
  kNone,          // granted before the clock starts, committed after it stops
  kOpenTransfer,  // OpenTransfer when the prefill starts, Commit when all is put
  kStaged,        // Ask, Take for each part, Finish
};

// A prompt of all blocks, dealt evenly to `writers`; computed layer by layer in `prefill`.
struct HandshakeJob {
  uint64_t serial = 0;
  HandshakeMode mode = HandshakeMode::kNone;
  int writers = 1;
  Clock::duration prefill{};
};

class HandshakeWriter {
 public:
  HandshakeWriter(const HandshakeShape& shape, std::shared_ptr<grpc::Channel> channel, int index);
  ~HandshakeWriter();

  // The part before the clock starts.
  void Prepare(const HandshakeJob& job);
  // Starts at `start`, and returns when the last thing happened that the mode counts.
  Clock::time_point Run(Clock::time_point start);
  // The part after the clock stops: the Commit that was not counted.
  void Conclude();

  // Round trips seen so far, in microseconds.
  const std::vector<double>& opens_us() const { return opens_us_; }
  const std::vector<double>& commits_us() const { return commits_us_; }
  // One Renew under the grant that Prepare got. REQUIRES: kNone, before Run.
  double RenewUs();

 private:
  engine::HandoffKey Key() const { return {1, job_.serial, 1}; }
  void OpenTransfer();
  void Granted(const v1::OpenTransferResponse& response);
  void Commit();
  void AcquireStagingBuffer();
  void Take(std::vector<StagedBlock> part);
  void Finish();
  void OnDone(std::vector<int64_t> bytes);
  void Over();

  const HandshakeShape shape_;
  const int index_;
  const std::unique_ptr<v1::DecodeWorker::Stub> decode_;
  const std::unique_ptr<Staging::Stub> staging_;
  std::unique_ptr<engine::Transport> transport_;
  std::unique_ptr<engine::HandoffSender> sender_;
  HandshakeJob job_;
  int buffer_ = 0;
  std::vector<int64_t> bytes_;
  std::vector<double> opens_us_, commits_us_;

  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;
  Clock::time_point over_at_;

  services::CallTracker calls_;
  std::unique_ptr<services::ProgressThread> progress_;  // gone first
};

}  // namespace skein::bench
