// TokenCall: the server's side of one StreamTokens call. The owner, on a thread of its own, says
// when the next request is read and what is written; the hooks tell it, on gRPC's threads, what
// happened. At most one read and one write are under way, so a slow peer holds one message here.
#pragma once

#include <functional>
#include <memory>
#include <mutex>

#include "grpcpp/grpcpp.h"
#include "proto/decode_worker.pb.h"

namespace skein::services {

class TokenCall final : public grpc::ServerBidiReactor<v1::TokenStreamRequest, v1::TokenBatch> {
 public:
  struct Hooks {
    std::function<void()> request;   // a request came: see request(), then Next
    std::function<void()> writable;  // once after a Writable that was false
    std::function<void()> closed;    // once, when the call ended otherwise than by Close
  };

  // The raw pointer goes back to gRPC from the method's handler. The call keeps itself alive until
  // gRPC is done with it; its holders may call at any time, and what comes after the end is
  // dropped.
  static std::shared_ptr<TokenCall> Make(Hooks hooks);

  // Reads the next request. REQUIRES: none is being read.
  void Next();
  // The last one; valid from its hook until Next.
  const v1::TokenStreamRequest& request() const { return request_; }

  // Whether a batch can be written now. The call over: false, and no hook follows.
  bool Writable();
  // REQUIRES: Writable.
  void Write(v1::TokenBatch batch);

  // Ends the call with `status`, after the write that is under way. Later calls are ignored.
  void Close(grpc::Status status);

 private:
  explicit TokenCall(Hooks hooks) : hooks_(std::move(hooks)) {}

  void OnReadDone(bool ok) override;
  void OnWriteDone(bool ok) override;
  void OnCancel() override;
  void OnDone() override;

  bool StartClosing(grpc::Status status);  // false: it is closing already
  void FinishIfIdle();                     // REQUIRES: mu_ held

  const Hooks hooks_;
  v1::TokenStreamRequest request_;
  v1::TokenBatch batch_;  // while it is written
  std::mutex mu_;
  bool writing_ = false;
  bool wanted_ = false;  // somebody waits for the write's end
  bool closing_ = false;
  bool finished_ = false;
  grpc::Status status_;
  std::shared_ptr<TokenCall> self_;
};

}  // namespace skein::services
