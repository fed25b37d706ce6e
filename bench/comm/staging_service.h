// The receiver of staged handoffs, for handshake_bench, with another number of buffers whenever a
// prompt is opened (why: staging.proto). The parts are the product's: scheduler/kv/backend_queue.h
// decides who may use which buffer, engine/handoff/staging_receiver.h copies out.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "bench/comm/staging.grpc.pb.h"
#include "engine/handoff/staging_receiver.h"
#include "scheduler/kv/backend_queue.h"

namespace skein::bench {

class StagingService : public Staging::CallbackService {
 public:
  explicit StagingService(std::unique_ptr<engine::StagingReceiver> receiver)
      : receiver_(std::move(receiver)) {}

  grpc::ServerUnaryReactor* Open(grpc::CallbackServerContext* context, const OpenRequest* request,
                                 OpenResponse* response) override;
  grpc::ServerUnaryReactor* Ask(grpc::CallbackServerContext* context, const AskRequest* request,
                                AskResponse* response) override;
  grpc::ServerUnaryReactor* Take(grpc::CallbackServerContext* context, const TakeRequest* request,
                                 TakeResponse* response) override;
  grpc::ServerUnaryReactor* Finish(grpc::CallbackServerContext* context,
                                   const FinishRequest* request, FinishResponse* response) override;

 private:
  struct Waiting {
    uint64_t writer = 0;
    AskResponse* response = nullptr;
    grpc::ServerUnaryReactor* reactor = nullptr;
  };

  // Answers those who have a backend by now.
  void AnswerAsks(const scheduler::BackendRequest& request);

  const std::unique_ptr<engine::StagingReceiver> receiver_;
  std::mutex mutex_;
  std::unique_ptr<scheduler::BackendQueue> queue_;
  std::vector<int32_t> blocks_;  // of the prompt; changes only between prompts
  std::vector<Waiting> waiting_;
};

}  // namespace skein::bench
