// Malformed gRPC messages against the real services: each is answered INVALID_ARGUMENT, and the
// service goes on.
#include <functional>
#include <map>
#include <random>
#include <variant>

#include "absl/strings/str_cat.h"
#include "grpcpp/generic/generic_stub.h"
#include "gtest/gtest.h"
#include "services/codec/codec.h"
#include "services/orchestrator/orchestrator_service.h"
#include "services/rpc/message_counters.h"
#include "services/rpc/rpc.h"
#include "services/worker/decode/decode_service.h"
#include "services/worker/prefill/prefill_service.h"
#include "services/worker/testing/emulated_worker.h"

namespace skein::services {
namespace {

using testing::EmulatedWorker;

scheduler::WorkerIdentity Identity(scheduler::Role role, const WorkerEngine& engine) {
  scheduler::WorkerIdentity identity;
  identity.role = role;
  identity.model = "m";
  identity.endpoint = "127.0.0.1:1";
  identity.incarnation = {7};
  identity.shape = ShapeOf(engine.engine->Spec());
  identity.total_blocks = engine.engine->Spec().kv.num_blocks;
  return identity;
}

// All three services in one process, nobody else there.
class MalformedRpc : public ::testing::Test {
 protected:
  MalformedRpc()
      : orchestrator_({}, 1024),
        orchestrator_service_(&orchestrator_),
        prefill_engine_(EmulatedWorker()),
        decode_engine_(EmulatedWorker()),
        prefill_(&prefill_engine_, "127.0.0.1:1", 1024),
        decode_(&decode_engine_, "127.0.0.1:1", 1024),
        prefill_service_(&prefill_),
        decode_service_(&decode_) {
    auto server =
        ServeRpc("127.0.0.1:0", {&orchestrator_service_, &prefill_service_, &decode_service_});
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
    orchestrator_.Start();
    scheduler::PrefillConfig prefill;
    prefill.membership.identity = Identity(scheduler::Role::kPrefill, prefill_engine_);
    prefill_.Start(prefill, [] {});
    scheduler::DecodeConfig decode;
    decode.membership.identity = Identity(scheduler::Role::kDecode, decode_engine_);
    decode.memory = decode_engine_.description;
    decode_.Start(decode, [] {});
    channel_ = grpc::CreateChannel(absl::StrCat("127.0.0.1:", server_.port),
                                   grpc::InsecureChannelCredentials());
  }
  ~MalformedRpc() override {
    decode_.Stop();
    prefill_.Stop();
    orchestrator_.Stop();
    server_.server->Shutdown(std::chrono::system_clock::now() + std::chrono::seconds(1));
  }

  // Sends raw bytes to a method; the status of the answer (for a stream: of its end).
  grpc::Status Send(const std::string& method, const std::string& bytes) {
    grpc::GenericStub stub(channel_);
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(20));
    grpc::Slice slice(bytes);
    const grpc::ByteBuffer request(&slice, 1);
    grpc::CompletionQueue queue;
    auto call = stub.PrepareCall(&context, "/skein.v1." + method, &queue);
    const auto await = [&queue] {
      void* tag = nullptr;
      bool ok = false;
      queue.Next(&tag, &ok);
      return ok;
    };
    call->StartCall(nullptr);
    await();
    call->WriteLast(request, {}, nullptr);
    await();
    grpc::ByteBuffer response;
    for (bool more = true; more;) {
      call->Read(&response, nullptr);
      more = await();
    }
    grpc::Status status;
    call->Finish(&status, nullptr);
    await();
    return status;
  }

  void ExpectRefused(const std::string& method, const std::string& bytes) {
    const grpc::Status status = Send(method, bytes);
    EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT)
        << method << ": " << status.error_message();
    EXPECT_FALSE(status.error_message().empty()) << method;
    ++refused_;
  }

  OrchestratorShell orchestrator_;
  OrchestratorService orchestrator_service_;
  WorkerEngine prefill_engine_;
  WorkerEngine decode_engine_;
  PrefillShell prefill_;
  DecodeShell decode_;
  PrefillService prefill_service_;
  DecodeService decode_service_;
  RpcServer server_;
  std::shared_ptr<grpc::Channel> channel_;
  int refused_ = 0;
};

const char* const kMethods[] = {"DecodeWorker/OpenTransfer", "DecodeWorker/Renew",
                                "DecodeWorker/Commit",       "DecodeWorker/Abort",
                                "DecodeWorker/StreamTokens", "DecodeWorker/AcquireStagingBuffer",
                                "DecodeWorker/TakePart",     "DecodeWorker/ReleaseStagingBuffer"};

v1::SamplingParams GoodSampling() {
  v1::SamplingParams sampling;
  sampling.set_top_p(1);
  sampling.set_repetition_penalty(1);
  return sampling;
}

v1::RequestSpec GoodSpec() {
  v1::RequestSpec spec;
  spec.mutable_id()->set_router(1);
  spec.mutable_id()->set_serial(1);
  spec.set_model("m");
  spec.set_prompt(PackTokens({1}));
  spec.set_max_tokens(1);
  spec.set_sampling(GoodSampling().SerializeAsString());
  return spec;
}

// A spec with one thing wrong, but not its id, nor what only workers look into.
v1::RequestSpec SpoiledSpec(std::mt19937_64* random) {
  v1::RequestSpec spec = GoodSpec();
  switch ((*random)() % 5) {
    case 0:
      spec.clear_model();
      break;
    case 1:
      spec.clear_prompt();
      break;
    case 2:
      spec.set_prompt("a token has four bytes");
      break;
    case 3:
      spec.set_max_tokens(0xf0000000u + static_cast<uint32_t>((*random)() % 1000));
      break;
    default:
      spec.add_names(std::string(300, 'n'));
  }
  return spec;
}

// A router's first message, with one thing wrong.
v1::RouterMessage SpoiledHello(std::mt19937_64* random) {
  v1::RouterMessage message;
  message.set_sequence(1);
  v1::RouterHello& hello = *message.mutable_hello();
  hello.mutable_identity()->set_router(1);
  hello.mutable_identity()->set_endpoint("r:80");
  hello.set_stream(1);
  *hello.add_requests()->mutable_id() = GoodSpec().id();
  switch ((*random)() % 9) {
    case 0:
      hello.mutable_identity()->clear_router();
      break;
    case 1:
      hello.mutable_identity()->clear_endpoint();
      break;
    case 2:
      hello.mutable_seen()->set_number(scheduler::kGenerationMax + (*random)() % 1000);
      break;
    case 3:
      hello.mutable_load()->set_running(~((*random)() % 1000));
      break;
    case 4:
      hello.add_requests();
      break;
    case 5:
      hello.mutable_requests(0)->mutable_id()->set_router(2);  // of another router
      break;
    case 6:
      *hello.add_ended()->mutable_id() = GoodSpec().id();  // it does not say how
      break;
    case 7:
      hello.clear_stream();
      break;
    default:
      message.set_session((*random)() % 1000 + 1);
  }
  return message;
}

// Good changes of a token stream, and one that is not.
v1::TokenStreamRequest SpoiledTokenRequest(std::mt19937_64* random) {
  v1::TokenStreamRequest request;
  const auto name = [](auto* change) {
    *change->mutable_id() = GoodSpec().id();
    change->set_epoch(1);
    return change;
  };
  name(request.add_attach());
  name(request.add_credit());
  name(request.add_detach());
  const uint64_t beyond = (uint64_t{1} << 31) + 1 + (*random)() % 1000;
  switch ((*random)() % 6) {
    case 0:
      request.add_attach();
      break;
    case 1:
      name(request.add_attach())->clear_epoch();
      break;
    case 2:
      name(request.add_attach())->set_credit(beyond);
      break;
    case 3:
      name(request.add_credit())->set_more(~beyond);
      break;
    case 4:
      name(request.add_credit())->mutable_id()->clear_router();
      break;
    default:
      name(request.add_detach())->mutable_id()->clear_serial();
  }
  return request;
}

TEST_F(MalformedRpc, SixHundredMessagesAreRefusedAndTheServicesGoOn) {
  std::mt19937_64 random(20);
  // Bytes that are no protobuf at all: an unfinished varint, a length beyond the end, an illegal
  // wire type.
  for (const char* method : kMethods) {
    for (const std::string& bytes :
         {std::string("\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"), std::string("\x0a\x7f\x01"),
          std::string("\x0f"), std::string("\x07\x00", 2)}) {
      ExpectRefused(method, bytes);
    }
  }
  // Well-formed, but empty: every method needs something.
  for (const char* method : kMethods) ExpectRefused(method, "");
  ExpectRefused("Orchestrator/ConnectWorker", "");
  EXPECT_FALSE(Send("Orchestrator/ConnectWorker", "\x0f").ok());
  ExpectRefused("Orchestrator/ConnectRouter", "");
  EXPECT_FALSE(Send("Orchestrator/ConnectRouter", "\x0f").ok());
  while (refused_ < 500) {
    v1::RouterMessages hello;
    *hello.add_messages() = SpoiledHello(&random);
    ExpectRefused("Orchestrator/ConnectRouter", hello.SerializeAsString());
    v1::OpenTransferRequest grant;
    *grant.mutable_id() = GoodSpec().id();
    grant.set_epoch(1);
    grant.mutable_kv()->set_num_layers(static_cast<uint32_t>(random()));
    ExpectRefused("DecodeWorker/OpenTransfer", grant.SerializeAsString());
    v1::WorkerMessages batch;
    v1::WorkerMessage& message = *batch.add_messages();
    message.set_sequence(1);
    v1::RegisterRequest& registration = *message.mutable_hello();
    registration.set_role(static_cast<v1::Role>(random() % 3));
    registration.set_model("m");
    registration.mutable_kv()->set_head_dim(static_cast<uint32_t>(random()));
    ExpectRefused("Orchestrator/ConnectWorker", batch.SerializeAsString());
  }
  while (refused_ < 600) {
    ExpectRefused("DecodeWorker/StreamTokens", SpoiledTokenRequest(&random).SerializeAsString());
  }
  // Still there, nothing held.
  EXPECT_TRUE(orchestrator_.CheckInvariants().ok()) << orchestrator_.CheckInvariants();
  EXPECT_EQ(orchestrator_.Look()->snapshot.submitted, 0u);
  EXPECT_TRUE(decode_.Inspect(
      [](const scheduler::DecodeSnapshot& snapshot, const absl::Status& invariants) {
        EXPECT_TRUE(invariants.ok()) << invariants;
        EXPECT_EQ(snapshot.blocks.free, snapshot.blocks.total);
      }));
}

TEST_F(MalformedRpc, AMalformedRequestFailsAloneOnItsRoutersStream) {
  std::mt19937_64 random(21);
  const auto stub = v1::Orchestrator::NewStub(channel_);
  grpc::ClientContext context;
  const auto stream = stub->ConnectRouter(&context);
  MessageCounters counters;
  const auto send = [&](v1::RouterMessage message) {
    counters.Stamp(&message, 0);
    v1::RouterMessages batch;
    *batch.add_messages() = std::move(message);
    EXPECT_TRUE(stream->Write(batch));
  };
  const auto receive = [&] {
    v1::OrchestratorRouterMessages batch;
    EXPECT_TRUE(stream->Read(&batch));
    EXPECT_EQ(batch.messages_size(), 1);
    EXPECT_TRUE(counters.Take(batch.messages(0), 0).ok());
    return batch.messages(0);
  };
  v1::RouterMessage hello;
  hello.mutable_hello()->mutable_identity()->set_router(1);
  hello.mutable_hello()->mutable_identity()->set_endpoint("r:80");
  hello.mutable_hello()->set_stream(1);
  send(hello);
  EXPECT_TRUE(receive().has_welcome());
  for (int i = 0; i < 100; ++i) {
    v1::RouterMessage submit;
    submit.mutable_submit()->set_spec(SpoiledSpec(&random).SerializeAsString());
    send(submit);
    const auto refused = FromProto(receive().update().update());
    ASSERT_TRUE(refused.ok()) << refused.status();
    const absl::Status status = std::get<scheduler::Failed>(*refused).status;
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  }
  v1::RouterMessage of_another;
  v1::RequestSpec spec = GoodSpec();
  spec.mutable_id()->set_router(2);
  of_another.mutable_submit()->set_spec(spec.SerializeAsString());
  send(of_another);
  v1::OrchestratorRouterMessages none;
  EXPECT_FALSE(stream->Read(&none));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::INVALID_ARGUMENT);
}

// A cut may hold a hello up until after the next one.
TEST_F(MalformedRpc, ALateHelloOfARouterIsRefusedAndItsStreamStays) {
  const auto stub = v1::Orchestrator::NewStub(channel_);
  MessageCounters counters;
  const auto send = [](const auto& stream, MessageCounters* counted, v1::RouterMessage message) {
    counted->Stamp(&message, 0);
    v1::RouterMessages batch;
    *batch.add_messages() = std::move(message);
    EXPECT_TRUE(stream->Write(batch));
  };
  const auto hello = [](uint64_t stream) {
    v1::RouterMessage message;
    message.mutable_hello()->mutable_identity()->set_router(1);
    message.mutable_hello()->mutable_identity()->set_endpoint("r:80");
    message.mutable_hello()->set_stream(stream);
    return message;
  };
  grpc::ClientContext context;
  const auto stream = stub->ConnectRouter(&context);
  send(stream, &counters, hello(2));
  v1::OrchestratorRouterMessages batch;
  ASSERT_TRUE(stream->Read(&batch));
  EXPECT_TRUE(counters.Take(batch.messages(0), 0).ok());

  grpc::ClientContext late_context;
  const auto late = stub->ConnectRouter(&late_context);
  MessageCounters late_counters;
  send(late, &late_counters, hello(1));
  v1::OrchestratorRouterMessages none;
  EXPECT_FALSE(late->Read(&none));
  EXPECT_EQ(late->Finish().error_code(), grpc::StatusCode::FAILED_PRECONDITION);

  v1::RouterMessage report;
  report.mutable_report();
  send(stream, &counters, report);
  ASSERT_TRUE(stream->Read(&batch));
  EXPECT_TRUE(batch.messages(0).has_report_taken());
}

TEST_F(MalformedRpc, AMismatchedHandshakeIsRefusedByName) {
  decode_.Post(
      scheduler::AnnounceCalled{{*SpecFrom(GoodSpec().SerializeAsString()), {5}, {{9}}}, {}});
  scheduler::OpenTransferRequest good;
  good.id = {1, 1};
  good.epoch = {5};
  good.prefill = {3};
  good.incarnation = {9};
  good.shape = ShapeOf(decode_engine_.engine->Spec());
  const std::map<std::string, std::function<void(scheduler::OpenTransferRequest*)>> spoils = {
      {"model_hash", [](auto* g) { g->shape.model_hash = "another"; }},
      {"dtype", [](auto* g) { g->shape.dtype = DType::kBF16; }},
      {"layout", [](auto* g) { g->shape.layout.tp = 2; }},
      {"block_tokens", [](auto* g) { g->shape.block_tokens = 8; }},
      {"num_layers", [](auto* g) { g->shape.num_layers = 3; }},
      {"epoch", [](auto* g) { g->epoch = {4}; }},
  };
  for (const auto& [field, spoil] : spoils) {
    scheduler::OpenTransferRequest bad = good;
    spoil(&bad);
    const grpc::Status status = Send("DecodeWorker/OpenTransfer", ToProto(bad).SerializeAsString());
    EXPECT_EQ(status.error_code(), grpc::StatusCode::FAILED_PRECONDITION) << field;
    EXPECT_NE(status.error_message().find(field), std::string::npos) << status.error_message();
  }
  EXPECT_TRUE(Send("DecodeWorker/OpenTransfer", ToProto(good).SerializeAsString()).ok());
}

}  // namespace
}  // namespace skein::services
