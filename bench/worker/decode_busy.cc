// How busy a decode-worker keeps its device: a whole worker (shell, core, gRPC) on an emulated
// device whose steps take a given time, with so many sequences, and a router's stub that drains
// their tokens on one stream.
//
//   decode_busy [--sequences=256] [--step_us=5000] [--seconds=10] [--rounds=3]
//
// By turns without and with steps launched ahead. Busy: steps times their time, of the time that
// passed between the first token and the last that were counted.
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/flags/parse.h"
#include "absl/strings/str_cat.h"
#include "engine/emulated/emulated_engine.h"
#include "engine/transport/loopback_transport.h"
#include "proto/decode_worker.grpc.pb.h"
#include "scheduler/vocabulary/check.h"
#include "services/codec/codec.h"
#include "services/rpc/credentials.h"
#include "services/rpc/rpc.h"
#include "services/worker/decode/decode_service.h"

ABSL_FLAG(int, sequences, 256, "sequences that decode");
ABSL_FLAG(int, step_us, 5000, "time of a step of the emulated device");
ABSL_FLAG(double, seconds, 10, "of each measurement");
ABSL_FLAG(int, rounds, 3, "measurements of each kind; the median is told");

namespace skein::services {
namespace {

using Clock = std::chrono::steady_clock;

// Tags of two words a token: what they cost is hidden in the step's time.
WorkerEngine Emulated(int sequences) {
  engine::EmulatedOptions options;
  options.max_positions = 1 << 20;
  options.kv = {{.num_layers = 1, .kv_heads = 1, .head_dim = 2, .dtype = engine::DType::kF32},
                sequences * 512};
  options.times.decode_step_s = absl::GetFlag(FLAGS_step_us) * 1e-6;
  WorkerEngine out;
  out.transport = engine::MakeLoopbackTransport(engine::MakeLoopbackFabric());
  out.engine = *engine::EmulatedEngine::Create(options);
  for (const engine::KvRegion& region : out.engine->KvRegions()) {
    out.regions.push_back(
        out.transport->Register(region.base, static_cast<size_t>(region.bytes))->id);
  }
  out.description = *out.transport->Describe(out.regions);
  return out;
}

class Worker {
 public:
  Worker(int sequences, bool launch_ahead)
      : engine_(Emulated(sequences)), shell_(&engine_, "127.0.0.1:1", 4096), service_(&shell_) {
    auto server = ServeRpc("127.0.0.1:0", {&service_});
    SKEIN_CHECK(server.ok());
    server_ = *std::move(server);
    scheduler::DecodeConfig config;
    config.membership.identity.role = scheduler::Role::kDecode;
    config.membership.identity.shape = ShapeOf(engine_.engine->Spec());
    config.membership.identity.total_blocks = engine_.engine->Spec().kv.num_blocks;
    config.memory = engine_.description;
    config.max_requests = sequences;
    config.batch.max_batch_sequences = sequences;
    config.launch_ahead = launch_ahead;
    shell_.Start(config, [] {});
    stub_ = v1::DecodeWorker::NewStub(
        grpc::CreateChannel(absl::StrCat("127.0.0.1:", server_.port), ClientCredentials()));
  }
  ~Worker() {
    shell_.Stop();
    server_.server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  }
  v1::DecodeWorker::Stub* stub() { return stub_.get(); }

  // Brings a request to where it samples tokens.
  void Run(uint64_t serial) {
    auto spec = std::make_shared<scheduler::RequestSpec>();
    spec->id = {1, serial};
    spec->model = "m";
    spec->prompt = {static_cast<int32_t>(serial)};
    spec->max_tokens = 1 << 18;
    v1::SamplingParams sampling;
    sampling.set_top_p(1);
    sampling.set_repetition_penalty(1);
    sampling.set_top_logprobs(-1);
    spec->sampling = sampling.SerializeAsString();
    shell_.Post(scheduler::AnnounceCalled{{spec, {1}, {{1}}}, {}});
    scheduler::OpenTransferRequest open;
    open.id = spec->id;
    open.epoch = {1};
    open.prefill = {1};
    open.incarnation = {1};
    open.shape = ShapeOf(engine_.engine->Spec());
    Call(&v1::DecodeWorker::Stub::OpenTransfer, ToProto(open));
    scheduler::CommitRequest commit;
    commit.id = spec->id;
    commit.epoch = {1};
    commit.prefill = {1};
    commit.token = 9;
    commit.bytes_per_layer = {engine_.engine->Spec().kv.BlockBytes()};
    Call(&v1::DecodeWorker::Stub::Commit, ToProto(commit));
  }

 private:
  template <typename Request, typename Response>
  void Call(grpc::Status (v1::DecodeWorker::Stub::*method)(grpc::ClientContext*, const Request&,
                                                           Response*),
            const Request& request) {
    grpc::ClientContext context;
    Response response;
    const grpc::Status status = (stub_.get()->*method)(&context, request, &response);
    SKEIN_CHECK_MSG(status.ok(), status.error_message().c_str());
  }

  WorkerEngine engine_;
  DecodeShell shell_;
  DecodeService service_;
  RpcServer server_;
  std::unique_ptr<v1::DecodeWorker::Stub> stub_;
};

// The share of the time in which the device worked.
double Busy(bool launch_ahead) {
  const int sequences = absl::GetFlag(FLAGS_sequences);
  Worker worker(sequences, launch_ahead);
  grpc::ClientContext context;
  const auto stream = worker.stub()->StreamTokens(&context);
  for (int i = 0; i < sequences; ++i) worker.Run(static_cast<uint64_t>(i + 1));
  v1::TokenStreamRequest attach;
  for (int i = 0; i < sequences; ++i) {
    auto* one = attach.add_attach();
    one->mutable_id()->set_router(1);
    one->mutable_id()->set_serial(static_cast<uint64_t>(i + 1));
    one->set_epoch(1);
    one->set_credit(1 << 20);
  }
  SKEIN_CHECK(stream->Write(attach));
  v1::TokenBatch batch;
  int64_t tokens = 0;
  const auto read_until = [&](Clock::time_point end) {
    while (Clock::now() < end) {
      SKEIN_CHECK(stream->Read(&batch));
      for (const auto& sequence : batch.sequences()) {
        SKEIN_CHECK(!sequence.has_finished());
        tokens += sequence.tokens_size();
      }
    }
  };
  read_until(Clock::now() + std::chrono::seconds(1));  // what waited, and the start
  const auto begin = Clock::now();
  tokens = 0;
  read_until(begin +
             std::chrono::microseconds(static_cast<int64_t>(absl::GetFlag(FLAGS_seconds) * 1e6)));
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  context.TryCancel();
  while (stream->Read(&batch)) {
  }
  stream->Finish();
  const double steps = static_cast<double>(tokens) / sequences;
  return steps * absl::GetFlag(FLAGS_step_us) * 1e-6 / seconds;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

void Measure() {
  std::vector<double> without, with;
  for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
    without.push_back(Busy(false));
    with.push_back(Busy(true));
    std::printf("device busy: %.2f %% one step at a time, %.2f %% launched ahead\n",
                100 * without.back(), 100 * with.back());
  }
  std::printf("median:      %.2f %% one step at a time, %.2f %% launched ahead\n",
              100 * Median(without), 100 * Median(with));
}

}  // namespace
}  // namespace skein::services

int main(int argc, char** argv) {
  absl::ParseCommandLine(argc, argv);
  skein::services::Measure();
}
