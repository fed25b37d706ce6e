// TokenStreamCall: the router's side of one StreamTokens call, driven by a loop. Batches are read
// ahead of the loop up to a limit (ReadAhead), and one request is written at a time. The call has
// no deadline: requests have theirs, and a peer that is silent is noticed by the keepalive of its
// connection (services/rpc/rpc.h).
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>

#include "absl/status/status.h"
#include "grpcpp/grpcpp.h"
#include "proto/decode_worker.grpc.pb.h"
#include "services/rpc/bidi_stream.h"
#include "services/shell/loop.h"

namespace skein::services {

class TokenStreamCall final
    : public grpc::ClientBidiReactor<v1::TokenStreamRequest, v1::TokenBatch> {
 public:
  struct Hooks {
    std::function<void(const v1::TokenBatch&)> batch;  // on the loop, not after Close
    std::function<void()> writable;           // on the loop, once after a Writable that was false
    std::function<void(absl::Status)> ended;  // on the loop, at most once, not after Close
    std::function<void()> done;               // on a gRPC thread, once, the last thing that happens
  };

  // On the loop. The call keeps itself alive until gRPC is done with it.
  static std::shared_ptr<TokenStreamCall> Open(const std::shared_ptr<grpc::Channel>& channel,
                                               Loop* loop, Hooks hooks);

  // The rest on the loop.
  bool Writable();
  // REQUIRES: Writable.
  void Write(v1::TokenStreamRequest request);
  // The other side sees the call cancelled; no hook but done follows.
  void Close();

 private:
  TokenStreamCall(const std::shared_ptr<grpc::Channel>& channel, Loop* loop, Hooks hooks);

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnDone(const grpc::Status& status) override;

  void Deal();
  void NothingFollows();

  Loop* const loop_;
  Hooks hooks_;
  const std::unique_ptr<v1::DecodeWorker::Stub> stub_;
  grpc::ClientContext context_;
  v1::TokenStreamRequest request_;
  v1::TokenBatch batch_;  // while `reading_`
  std::mutex mu_;
  // With mu_ held.
  ReadAhead<v1::TokenBatch> arrived_;
  bool reading_ = true;
  bool ended_ = false;  // nothing follows what has arrived
  bool writing_ = false;
  bool wanted_ = false;  // somebody waits for the write's end
  // On the loop.
  bool closed_ = false;  // no hook may run
  bool over_ = false;    // nothing is read or written any more
  std::shared_ptr<TokenStreamCall> self_;
};

}  // namespace skein::services
