// The receiver of staged handoffs, for handshake_bench, with another number of buffers whenever a
// prompt is opened (why: staging.proto). The parts are the product's:
// scheduler/kv/staging_buffer_queue.h decides which writer may use which buffer,
// engine/handoff/staging_receiver.h copies out.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "bench/comm/staging.grpc.pb.h"
#include "engine/handoff/staging_receiver.h"
#include "scheduler/kv/staging_buffer_queue.h"

namespace skein::bench {

class StagingService : public Staging::CallbackService {
 public:
  // `reserve` is given the orders of Reserve, on gRPC threads.
  StagingService(std::unique_ptr<engine::StagingReceiver> receiver,
                 std::function<void(const std::string& order)> reserve)
      : receiver_(std::move(receiver)), reserve_(std::move(reserve)) {}

  grpc::ServerUnaryReactor* Reserve(grpc::CallbackServerContext* context,
                                    const ReserveOrder* request, ReserveOrderTaken*) override {
    reserve_(request->order());
    grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }

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

  // Answers the writers that have a buffer by now.
  void AnswerWaiting(const scheduler::StagingRequest& request);

  const std::unique_ptr<engine::StagingReceiver> receiver_;
  const std::function<void(const std::string& order)> reserve_;
  std::mutex mutex_;
  std::unique_ptr<scheduler::StagingBufferQueue> queue_;
  std::vector<BlockId> blocks_;  // of the prompt; changes only between prompts
  std::vector<Waiting> waiting_;
};

}  // namespace skein::bench
