// The service over gRPC, with a router that computes lines.
#include "services/jobs/job_service.h"

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "services/rpc/rpc.h"

namespace skein::services {
namespace {

namespace fs = std::filesystem;

// One orchestrator's jobs, and a stub for them.
struct Orchestrator {
  Orchestrator(const std::string& folder, std::function<absl::Status()> standing)
      : shell({.folder = folder,
               .file_bytes_max = 1 << 20,
               .core = {.lease_us = 5 * scheduler::kSecondUs, .settle_us = 0}},
              {.standing = std::move(standing),
               .load =
                   [] {
                     return scheduler::jobs::ClusterLoad{
                         .instances = 4, .waiting = 0, .free_kv = 1};
                   },
               .waiting = [this](const std::string& model,
                                 int64_t lines) { waits_for_m = model == "m" ? lines : -1; }}),
        service(&shell) {
    shell.Start();
    auto served = ServeRpc("127.0.0.1:0", {&service});
    EXPECT_TRUE(served.ok()) << served.status();
    rpc = *std::move(served);
    stub = v1::Jobs::NewStub(grpc::CreateChannel(absl::StrCat("127.0.0.1:", rpc.port),
                                                 grpc::InsecureChannelCredentials()));
  }
  ~Orchestrator() {
    shell.Stop();
    rpc.server->Shutdown(std::chrono::system_clock::now());
  }

  std::atomic<int64_t> waits_for_m = 0;  // lines, as told last; -1: of another model
  JobShell shell;
  JobService service;
  RpcServer rpc;
  std::unique_ptr<v1::Jobs::Stub> stub;
};

class JobServiceTest : public ::testing::Test {
 protected:
  JobServiceTest() {
    std::string name = ::testing::TempDir() + "/jobs.XXXXXX";
    folder_ = mkdtemp(name.data());
    Begin();
  }
  ~JobServiceTest() override {
    orchestrator_.reset();
    fs::remove_all(folder_);
  }
  void Begin() {
    orchestrator_.reset();
    orchestrator_ = std::make_unique<Orchestrator>(folder_, [] { return absl::OkStatus(); });
    // The store is opened at once, on another thread.
    Await([this] { return orchestrator_->shell.Ready().ok(); });
  }
  v1::Jobs::Stub& stub() { return *orchestrator_->stub; }

  // Asks until it is so; the test's own limit ends it if it never is.
  static void Await(const std::function<bool()>& so) {
    while (!so()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }

  static std::string Input(int lines) {
    std::string text;
    for (int line = 1; line <= lines; ++line) {
      absl::StrAppend(&text, R"({"custom_id": "id-)", line,
                      R"(", "method": "POST", "url": "/v1/completions", "body": )",
                      R"({"model": "m", "prompt": "p)", line, "\"}}\n");
    }
    return text;
  }
  // In pieces of some bytes. `told_bytes`: in the header; 0: in the trailer, unless it is cut off.
  grpc::Status Upload(const std::string& id, const std::string& content, v1::StoredFile* file,
                      int64_t told_bytes = 0, bool cut_off = false) {
    grpc::ClientContext context;
    const auto stream = stub().CreateFile(&context, file);
    v1::CreateFileRequest part;
    part.mutable_header()->set_id(id);
    part.mutable_header()->set_purpose("batch");
    part.mutable_header()->set_bytes(static_cast<uint64_t>(told_bytes));
    stream->Write(part);
    for (size_t at = 0; at < content.size(); at += 100) {
      part.set_content(content.substr(at, 100));
      stream->Write(part);
    }
    if (told_bytes == 0 && !cut_off) {
      part.mutable_trailer()->set_bytes(content.size());
      part.mutable_trailer()->set_expires_s(1LL << 40);
      stream->Write(part);
    }
    stream->WritesDone();
    return stream->Finish();
  }
  std::string Download(const std::string& id) {
    grpc::ClientContext context;
    v1::FileId request;
    request.set_id(id);
    const auto stream = stub().ReadFile(&context, request);
    std::string content;
    for (v1::FileContent part; stream->Read(&part);) content += part.content();
    const grpc::Status status = stream->Finish();
    return status.ok() ? content : status.error_message();
  }
  v1::JobStatus Create(int lines) {
    v1::StoredFile file;
    EXPECT_TRUE(Upload("file-1", Input(lines), &file).ok());
    grpc::ClientContext context;
    v1::CreateJobRequest request;
    request.set_id("batch_1");
    request.set_input_file("file-1");
    request.set_endpoint("/v1/completions");
    request.set_window_s(3600);
    v1::JobStatus status;
    const grpc::Status created = stub().CreateJob(&context, request, &status);
    EXPECT_TRUE(created.ok()) << created.error_message();
    return status;
  }
  v1::JobStatus Get() {
    grpc::ClientContext context;
    v1::JobId request;
    request.set_id("batch_1");
    v1::JobStatus status;
    const grpc::Status got = stub().GetJob(&context, request, &status);
    EXPECT_TRUE(got.ok()) << got.error_message();
    return status;
  }
  v1::JobStatus AwaitState(v1::JobState state) {
    v1::JobStatus status;
    Await([&] {
      status = Get();
      return status.state() == state || HasFailure();
    });
    return status;
  }
  // custom_id to the text of each line's answer.
  std::map<std::string, std::string> Answers(const std::string& file) {
    std::map<std::string, std::string> answers;
    for (const auto line : absl::StrSplit(Download(file), '\n', absl::SkipEmpty())) {
      const auto json = nlohmann::json::parse(line);
      EXPECT_TRUE(answers.emplace(json["custom_id"], json["response"]["body"]["text"]).second);
    }
    return answers;
  }

  std::string folder_;
  std::unique_ptr<Orchestrator> orchestrator_;
};

// A router that answers every line with its prompt.
class FakeRouter {
 public:
  FakeRouter(v1::Jobs::Stub* stub, uint64_t id, const std::vector<v1::LineId>& held = {})
      : stream_(stub->ComputeLines(&context_)) {
    v1::RouterLines hello;
    hello.mutable_hello()->set_router(id);
    hello.mutable_hello()->set_room(4);
    for (const v1::LineId& line : held) *hello.mutable_hello()->add_held() = line;
    stream_->Write(hello);
  }
  ~FakeRouter() {
    context_.TryCancel();
    stream_->Finish();
  }

  // The next order; empty: the stream has ended.
  std::optional<v1::OrchestratorLines::Order> NextOrder() {
    for (v1::OrchestratorLines message; stream_->Read(&message);) {
      if (message.has_order()) return message.order();
      if (message.has_kept()) kept.push_back(message.kept().line());
      if (message.has_cancel()) cancelled.push_back(message.cancel().line());
    }
    return std::nullopt;
  }
  void Answer(const v1::OrchestratorLines::Order& order, uint32_t status = 200) {
    const auto body = nlohmann::json::parse(order.body());
    v1::RouterLines answer;
    auto* const result = answer.mutable_result();
    *result->mutable_line() = order.line();
    result->set_status_code(status);
    result->set_request_id("req");
    result->set_body(nlohmann::json{{"text", body["prompt"]}}.dump());
    result->set_prompt_tokens(2);
    result->set_output_tokens(3);
    stream_->Write(answer);
  }
  // Answers orders until the stream ends or `count` are answered.
  void Run(int count) {
    for (int i = 0; i < count; ++i) {
      const auto order = NextOrder();
      if (!order.has_value()) return;
      Answer(*order);
    }
  }
  // Run returns then. Any thread.
  void End() { context_.TryCancel(); }

  std::vector<uint64_t> kept, cancelled;

 private:
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<v1::RouterLines, v1::OrchestratorLines>> stream_;
};

TEST_F(JobServiceTest, AFileComesBackAsItWent) {
  const std::string content(600'000, 'x');
  v1::StoredFile file;
  ASSERT_TRUE(Upload("file-1", content, &file, 600'000).ok());
  EXPECT_EQ(file.bytes(), 600'000u);
  EXPECT_GT(file.created_s(), 0);
  ASSERT_TRUE(Upload("file-3", content, &file).ok());
  EXPECT_EQ(file.expires_s(), 1LL << 40);
  ASSERT_TRUE(Upload("file-4", "", &file).ok()) << "an empty file is one";
  EXPECT_EQ(Download("file-1"), content);
  EXPECT_EQ(Download("file-2"), "there is no file 'file-2'");
}

TEST_F(JobServiceTest, AnUploadIsWholeOrNothing) {
  v1::StoredFile file;
  EXPECT_EQ(Upload("file-1", "abc", &file, 4).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Upload("file-1", std::string(2 << 20, 'x'), &file).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Upload("../1", "abc", &file).error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Upload("file-1", "abc", &file, 0, true).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(Download("file-1"), "there is no file 'file-1'");
}

TEST_F(JobServiceTest, ARouterComputesAJob) {
  EXPECT_EQ(Create(20).state(), v1::JOB_STATE_VALIDATING);
  std::thread router([this] { FakeRouter(&stub(), 7).Run(20); });
  router.join();
  // The router's answers are on their way, and it is gone: what was not taken is given again.
  FakeRouter second(&stub(), 7);
  std::thread rest([&second] { second.Run(20); });
  const v1::JobStatus status = AwaitState(v1::JOB_STATE_COMPLETED);
  second.End();
  rest.join();
  EXPECT_EQ(status.completed(), 20u);
  EXPECT_EQ(status.lines(), 20u);
  EXPECT_EQ(status.output_tokens(), 60u);
  const auto answers = Answers(status.output_file());
  EXPECT_EQ(answers.size(), 20u);
  EXPECT_EQ(answers.at("id-7"), "p7");
  EXPECT_EQ(status.error_file(), "");
}

TEST_F(JobServiceTest, EachLineOnceThoughTheOrchestratorDiesAgainAndAgain) {
  Create(30);
  for (int life = 0; life < 5; ++life) {
    FakeRouter router(&stub(), 7);
    router.Run(5);
    Begin();  // what is on its way is lost, or kept and not acknowledged
  }
  FakeRouter router(&stub(), 7);
  std::thread rest([&router] { router.Run(1000); });
  const v1::JobStatus status = AwaitState(v1::JOB_STATE_COMPLETED);
  router.End();
  rest.join();
  const auto answers = Answers(status.output_file());
  EXPECT_EQ(answers.size(), 30u);
  for (int line = 1; line <= 30; ++line) {
    EXPECT_EQ(answers.at(absl::StrCat("id-", line)), absl::StrCat("p", line));
  }
}

TEST_F(JobServiceTest, TellsHowManyLinesOfAModelWait) {
  Create(9);
  Await([this] { return orchestrator_->waits_for_m == 9; });
  Begin();
  Await([this] { return orchestrator_->waits_for_m == 9; });
  FakeRouter router(&stub(), 1);
  Await([this] { return orchestrator_->waits_for_m < 9; });
  std::thread runs([&router] { router.Run(9); });
  AwaitState(v1::JOB_STATE_COMPLETED);
  Await([this] { return orchestrator_->waits_for_m == 0; });
  router.End();
  runs.join();
}

TEST_F(JobServiceTest, ACancelWithdrawsTheLinesAndEndsTheJob) {
  Create(3);
  FakeRouter router(&stub(), 7);
  const auto order = router.NextOrder();
  ASSERT_TRUE(order.has_value());
  EXPECT_EQ(order->endpoint(), "/v1/completions");
  EXPECT_GT(order->within_us(), 0u);
  router.Answer(*order);
  Await([this] { return Get().completed() == 1; });
  EXPECT_GT(Get().running(), 0u);
  grpc::ClientContext context;
  v1::JobId request;
  request.set_id("batch_1");
  v1::JobStatus status;
  ASSERT_TRUE(stub().CancelJob(&context, request, &status).ok());
  EXPECT_EQ(status.state(), v1::JOB_STATE_CANCELLING);
  status = AwaitState(v1::JOB_STATE_CANCELLED);
  EXPECT_EQ(Answers(status.output_file()).size(), 1u);
}

TEST_F(JobServiceTest, ALineThatNobodyWantsIsCancelledInTheHello) {
  v1::LineId unknown;
  unknown.set_job("batch_9");
  unknown.set_line(3);
  Create(1);
  FakeRouter router(&stub(), 7, {unknown});
  ASSERT_TRUE(router.NextOrder().has_value());
  EXPECT_EQ(router.cancelled, std::vector<uint64_t>{3});
}

TEST_F(JobServiceTest, AWrongInputFailsTheJob) {
  v1::StoredFile file;
  ASSERT_TRUE(Upload("file-1", "nonsense\n", &file).ok());
  grpc::ClientContext context;
  v1::CreateJobRequest request;
  request.set_id("batch_1");
  request.set_input_file("file-1");
  request.set_endpoint("/v1/completions");
  request.set_window_s(3600);
  v1::JobStatus status;
  ASSERT_TRUE(stub().CreateJob(&context, request, &status).ok());
  status = AwaitState(v1::JOB_STATE_FAILED);
  ASSERT_EQ(status.errors_size(), 1);
  EXPECT_EQ(status.errors(0).code(), "invalid_json_line");
  EXPECT_EQ(orchestrator_->shell.Figures()->ended["failed"], 1u);
}

TEST_F(JobServiceTest, OnlyTheLeaderServesAndASuccessorTakesTheFolder) {
  Create(2);
  std::atomic<bool> leads = false;
  Orchestrator standby(
      folder_, [&leads] { return leads.load() ? absl::OkStatus() : StandbyError("host:1"); });
  grpc::ClientContext refused;
  v1::JobId request;
  request.set_id("batch_1");
  v1::JobStatus status;
  const grpc::Status told = standby.stub->GetJob(&refused, request, &status);
  EXPECT_EQ(told.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_EQ(LeaderOf(FromGrpc(told, "orchestrator")), "host:1");
  leads = true;
  Await([&] { return standby.shell.Ready().ok(); });
  grpc::ClientContext context;
  EXPECT_TRUE(standby.stub->GetJob(&context, request, &status).ok());
  leads = false;
  Await([&] { return !standby.shell.Figures()->serves; });
}

TEST_F(JobServiceTest, TellsOperatorsThatItsFolderCannotBeUsed) {
  const std::string folder = folder_ + "/file";
  std::ofstream(folder) << "not a folder";
  std::atomic<bool> leads = true;
  Orchestrator other(folder,
                     [&leads] { return leads.load() ? absl::OkStatus() : StandbyError("host:1"); });
  Await([&] { return other.shell.Figures()->refused; });
  EXPECT_FALSE(other.shell.Figures()->serves);
  leads = false;  // then the folder is another one's concern
  Await([&] { return !other.shell.Figures()->refused; });
}

TEST(JobService, SaysThatJobsAreTurnedOff) {
  JobService service(nullptr);
  auto rpc = ServeRpc("127.0.0.1:0", {&service});
  ASSERT_TRUE(rpc.ok());
  const auto stub = v1::Jobs::NewStub(grpc::CreateChannel(absl::StrCat("127.0.0.1:", rpc->port),
                                                          grpc::InsecureChannelCredentials()));
  grpc::ClientContext unary, upload, lines;
  v1::JobStatus status;
  EXPECT_EQ(stub->GetJob(&unary, {}, &status).error_code(), grpc::StatusCode::FAILED_PRECONDITION);
  v1::StoredFile file;
  EXPECT_EQ(stub->CreateFile(&upload, &file)->Finish().error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(stub->ComputeLines(&lines)->Finish().error_code(),
            grpc::StatusCode::FAILED_PRECONDITION);
  rpc->server->Shutdown();
}

}  // namespace
}  // namespace skein::services
