// The streams of tokens of one decode-worker, as a router reads them.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <thread>

#include "proto/decode_worker.grpc.pb.h"
#include "scheduler/base/ids.h"

namespace skein::services::testing {

// Thread-safe.
class TokenReader {
 public:
  // `told` is called on the reader's thread.
  TokenReader(const std::string& endpoint,
              std::function<void(const v1::TokenBatch::Sequence&)> told);
  ~TokenReader();

  void Attach(scheduler::RequestId id, uint64_t epoch);
  bool ended() const { return ended_; }            // what had come was told
  const std::string& why() const { return why_; }  // it has ended

 private:
  const std::unique_ptr<v1::DecodeWorker::Stub> stub_;
  grpc::ClientContext context_;
  const std::unique_ptr<grpc::ClientReaderWriter<v1::TokenStreamRequest, v1::TokenBatch>> stream_;
  std::string why_;
  std::atomic<bool> ended_{false};
  std::thread thread_;
};

}  // namespace skein::services::testing
