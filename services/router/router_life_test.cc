// What becomes of requests that do not end well, and of many at a time.
#include <gtest/gtest.h>

#include <future>
#include <map>
#include <thread>

#include "absl/strings/str_cat.h"
#include "services/router/testing/router_fixture.h"

namespace skein::services::testing {
namespace {

Script Held(std::string text) {
  Script script = Says(std::move(text));
  script.hold = true;
  return script;
}

Json Completion(bool stream = false) {
  return {{"model", "m"}, {"prompt", "p"}, {"stream", stream}, {"max_tokens", 64}};
}

TEST_F(RouterTest, RefusalsNameWhatIsWrong) {
  StartRouter([](const v1::RequestSpec&) { return Says("x"); });
  const auto error = [this](const std::string& path, const Json& body, int status) {
    const http::Response response = Post(path, body);
    EXPECT_EQ(response.status, status) << response.body;
    return Json::parse(response.body)["error"];
  };
  Json e = error("/v1/completions", {{"model", "other"}, {"prompt", "p"}}, 404);
  EXPECT_EQ(e["code"], "model_not_found");
  EXPECT_EQ(e["param"], "model");
  e = error("/v1/completions", {{"prompt", "p"}}, 400);
  EXPECT_EQ(e["param"], "model");
  e = error("/v1/completions", {{"model", "m"}, {"prompt", std::string(200, 'x')}}, 400);
  EXPECT_EQ(e["code"], "context_length_exceeded");
  EXPECT_EQ(e["param"], "prompt");
  EXPECT_NE(e["message"].get<std::string>().find("200 tokens"), std::string::npos);
  e = error("/v1/completions", {{"model", "m"}, {"prompt", {1, 258}}}, 400);
  EXPECT_EQ(e["param"], "prompt");
  e = error("/v1/completions", {{"model", "m"}, {"prompt", "p"}, {"logit_bias", {{"258", 1}}}},
            400);
  EXPECT_EQ(e["param"], "logit_bias");
  e = error("/v1/completions",
            {{"model", "m"}, {"prompt", "p"}, {"stop_token_ids", std::vector<int>(129, 7)}}, 400);
  EXPECT_EQ(e["param"], "stop_token_ids");
  EXPECT_EQ(e["message"], "Invalid 'stop_token_ids': it has 129 ids; at most 128 are allowed.");
  e = error("/v1/completions", {{"model", "m"}, {"prompt", "p"}, {"stop_token_ids", {258}}}, 400);
  EXPECT_EQ(e["param"], "stop_token_ids");
  EXPECT_EQ(e["message"],
            "Invalid 'stop_token_ids': token id 258 is out of range (vocabulary size 258).");
  Json biases = Json::object();
  for (int id = 0; id < 1025; ++id) biases[std::to_string(id)] = 1;
  e = error("/v1/completions", {{"model", "m"}, {"prompt", "p"}, {"logit_bias", biases}}, 400);
  EXPECT_EQ(e["param"], "logit_bias");
  EXPECT_EQ(e["message"], "Invalid 'logit_bias': it has 1025 tokens; at most 1024 are allowed.");
  e = error(
      "/v1/chat/completions",
      {{"model", "m"}, {"messages", {{{"role", "user"}, {"content", "a"}}}}, {"max_tokens", 5000}},
      400);
  EXPECT_EQ(e["code"], "context_length_exceeded");
  EXPECT_EQ(e["param"], "messages");
  EXPECT_EQ(http::testing::Fetch(server_->port(), "POST", "/v1/completions", "{}",
                                 {{"Content-Type", "text/plain"}})
                .status,
            415);
  EXPECT_EQ(http::testing::Fetch(server_->port(), "GET", "/v1/completions").status, 405);
  EXPECT_EQ(http::testing::Fetch(server_->port(), "GET", "/v1/models/zz").status, 404);
  EXPECT_TRUE(cluster_->specs().empty());
}

TEST_F(RouterTest, FailureBeforeTheFirstTokenIsAnHttpError) {
  StartRouter([](const v1::RequestSpec&) {
    Script script;
    script.plan = absl::UnavailableError("no decode instance");
    return script;
  });
  for (const bool stream : {false, true}) {
    const http::Response response = Post("/v1/completions", Completion(stream));
    EXPECT_EQ(response.status, 503);
    EXPECT_EQ(http::FindHeader(response.headers, "Retry-After"), "1");
    EXPECT_EQ(Json::parse(response.body)["error"]["message"], "no decode instance");
  }
}

TEST_F(RouterTest, FailureInMidStreamIsAnEventAndNoDone) {
  StartRouter([](const v1::RequestSpec&) {
    Script script = Says("ab");
    script.failure = absl::UnavailableError("worker died");
    return script;
  });
  const http::Response response = Post("/v1/completions", Completion(true));
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(response.body.find("[DONE]"), std::string::npos);
  EXPECT_NE(response.body.find(R"({"error":{"message":"worker died","type":"server_error")"),
            std::string::npos);
  EXPECT_EQ(Post("/v1/completions", Completion(false)).status, 503);
}

TEST_F(RouterTest, AStreamWhoseInstanceIsLostGoesOnBehindWhatItsClientHas) {
  resume_wait_us_ = scheduler::kSecondUs;
  StartRouter([](const v1::RequestSpec& spec) {
    Script script = Says(spec.sent().empty() ? "ab" : "cd");
    if (spec.sent().empty()) script.failure = absl::UnavailableError("worker died");
    return script;
  });
  const http::Response response = Post("/v1/completions", Completion(true));
  EXPECT_EQ(response.status, 200);
  EXPECT_NE(response.body.find("[DONE]"), std::string::npos) << response.body;
  const Json whole = Json::parse(Post("/v1/completions", Completion(false)).body);
  EXPECT_EQ(whole["choices"][0]["text"], "abcd");
  const std::vector<v1::RequestSpec> specs = cluster_->specs();
  ASSERT_EQ(specs.size(), 4u);
  EXPECT_EQ(specs[1].sent().size(), 2 * sizeof(int32_t));
  EXPECT_EQ(specs[1].prompt(), specs[0].prompt());
}

// The first prompt's tokens are there before the second prompt is refused.
TEST_F(RouterTest, AStreamOpensOnlyWhenNoChoiceCanBeRefusedAnyMore) {
  const auto first_has_come = [this] {
    return metrics_.Render().find(
               "vllm:generation_tokens_total{engine=\"0\",model_name=\"m\"} 3") !=
           std::string::npos;
  };
  StartRouter([&](const v1::RequestSpec& spec) {
    if (PromptOf(spec)[0] == 'a') return Held("abc");
    const auto limit = std::chrono::steady_clock::now() + std::chrono::seconds(30);
    while (!first_has_come() && std::chrono::steady_clock::now() < limit) {
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    EXPECT_TRUE(first_has_come());
    Script script = Says("d");
    if (PromptOf(spec)[0] == 'b') script.plan = absl::ResourceExhaustedError("full");
    return script;
  });
  Json body = Completion(true);
  body["prompt"] = {"a", "b"};
  const http::Response refused = Post("/v1/completions", body);
  EXPECT_EQ(refused.status, 429) << refused.body;
  EXPECT_EQ(Json::parse(refused.body)["error"]["message"], "full");
}

TEST_F(RouterTest, UnreachableClusterIs503WithoutItsAddress) {
  scheduler::RouterConfig core;
  core.orchestrator_wait_us = scheduler::kSecondUs;
  StartRouter([](const v1::RequestSpec&) { return Says("x"); }, core);
  Ask("/v1/completions", Completion());
  const std::string port = cluster_->endpoint().substr(cluster_->endpoint().rfind(':') + 1);
  cluster_.reset();
  const http::Response response = Post("/v1/completions", Completion());
  EXPECT_EQ(response.status, 503);
  EXPECT_EQ(response.body.find(port), std::string::npos) << response.body;
}

TEST_F(RouterTest, OverloadIs429WithRetryAfterAndNoWork) {
  scheduler::RouterConfig core;
  core.max_streams = 1;
  core.max_queued = 0;
  StartRouter([](const v1::RequestSpec&) { return Held("a"); }, core);
  RawClient first(server_->port());
  first.Send(MakeRequest("POST", "/v1/completions", Completion(true).dump()));
  EXPECT_EQ(first.ReadHead().status, 200);
  const http::Response refused = Post("/v1/completions", Completion());
  EXPECT_EQ(refused.status, 429);
  EXPECT_GE(std::stoi(std::string(http::FindHeader(refused.headers, "Retry-After"))), 1);
  EXPECT_EQ(Json::parse(refused.body)["error"]["type"], "rate_limit_error");
  EXPECT_EQ(cluster_->specs().size(), 1u);
  first.Close();
  EXPECT_TRUE(cluster_->AwaitEnded(1, 1));
}

TEST_F(RouterTest, OneRejectedChoiceCancelsTheOthers) {
  scheduler::RouterConfig core;
  core.max_streams = 3;
  core.max_queued = 0;
  StartRouter([](const v1::RequestSpec&) { return Held("a"); }, core);
  RawClient first(server_->port());
  first.Send(MakeRequest("POST", "/v1/completions", Completion(true).dump()));
  EXPECT_EQ(first.ReadHead().status, 200);
  Json body = Completion();
  body["n"] = 3;
  EXPECT_EQ(Post("/v1/completions", body).status, 429);
  // Two places are free again.
  RawClient client(server_->port());
  body["n"] = 2;
  body["stream"] = true;
  client.Send(MakeRequest("POST", "/v1/completions", body.dump()));
  EXPECT_EQ(client.ReadHead().status, 200);
}

TEST_F(RouterTest, MoreChoicesThanThereIsEverRoomForAreTheClientsFault) {
  scheduler::RouterConfig core;
  core.max_streams = 2;
  core.max_queued = 1;
  StartRouter([](const v1::RequestSpec&) { return Says("a"); }, core);
  Json body = Completion();
  body["n"] = 3;
  EXPECT_EQ(Post("/v1/completions", body).status, 200);
  body["n"] = 4;
  const http::Response refused = Post("/v1/completions", body);
  EXPECT_EQ(refused.status, 400);
  const Json error = Json::parse(refused.body)["error"];
  EXPECT_EQ(error["param"], "n");
  EXPECT_NE(error["message"].get<std::string>().find("max_streams 2 + max_queued 1"),
            std::string::npos);
}

class LeavingTest : public RouterTest, public ::testing::WithParamInterface<bool> {};

TEST_P(LeavingTest, ClientThatLeavesCancelsEverything) {
  const bool stream = GetParam();
  StartRouter([](const v1::RequestSpec&) { return Held("abc"); });
  RawClient client(server_->port());
  Json body = Completion(stream);
  body["n"] = 2;
  client.Send(MakeRequest("POST", "/v1/completions", body.dump()));
  if (stream) {
    EXPECT_EQ(client.ReadHead().status, 200);
  }
  // The head comes with the first token of either choice.
  while (cluster_->attached() < 2) std::this_thread::yield();
  client.Close();
  EXPECT_TRUE(cluster_->AwaitEnded(2, 2));
}

INSTANTIATE_TEST_SUITE_P(StreamOrNot, LeavingTest, ::testing::Bool());

TEST_F(RouterTest, ReaderThatStallsLosesNothing) {
  // Far more than the answer's buffer holds.
  constexpr size_t kTokens = 4000;
  http::ServerOptions options;
  options.buffer_bytes_max = 4096;
  max_positions_ = 100'000;
  StartRouter(
      [](const v1::RequestSpec&) {
        Script script = Says(std::string(kTokens, 'x'));
        for (v1::SampledToken& token : script.tokens) {
          for (int i = 0; i < 20; ++i) {
            token.add_top()->set_token('a' + i);
            token.mutable_top(i)->set_logprob(-1.f - static_cast<float>(i));
          }
        }
        return script;
      },
      {}, options);
  RawClient client(server_->port());
  Json body = Completion(true);
  body["max_tokens"] = kTokens;
  body["logprobs"] = 20;
  client.Send(MakeRequest("POST", "/v1/completions", body.dump()));
  EXPECT_EQ(client.ReadHead().status, 200);
  EXPECT_EQ(Ask("/tokenize", {{"prompt", "a"}})["count"], 1);  // others are served meanwhile
  std::string chunk;
  size_t events = 0, bytes = 0;
  do {
    ASSERT_TRUE(client.ReadChunk(&chunk));
    events += chunk.find("\"text\":\"x\"") != std::string::npos ? 1 : 0;
    bytes += chunk.size();
  } while (!chunk.empty());
  EXPECT_EQ(events, kTokens);
  EXPECT_GT(bytes, 1u << 20);
}

TEST_F(RouterTest, NamesTravel) {
  StartRouter([](const v1::RequestSpec&) { return Says("x"); });
  const std::string trace = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
  http::Response response =
      Post("/v1/completions", Completion(), {{"X-Request-Id", "mine-1"}, {"traceparent", trace}});
  EXPECT_EQ(http::FindHeader(response.headers, "X-Request-Id"), "mine-1");
  EXPECT_EQ(cluster_->traceparent(), trace);
  response = Post("/v1/completions", {{"model", 5}}, {{"X-Request-Id", "mine-2"}});
  EXPECT_EQ(http::FindHeader(response.headers, "X-Request-Id"), "mine-2");
  response = Post("/v1/completions", Completion(), {{"X-Request-Id", "a b"}});
  EXPECT_EQ(http::FindHeader(response.headers, "X-Request-Id").substr(0, 4), "req-");
}

TEST_F(RouterTest, ManyStreamsAtATime) {
  constexpr int kStreams = 300;
  scheduler::RouterConfig core;
  core.max_streams = kStreams;
  StartRouter(
      [](const v1::RequestSpec& spec) {
        return Says("answer " + std::to_string(PromptOf(spec).size()));
      },
      core);
  std::vector<std::unique_ptr<RawClient>> clients;
  for (int i = 0; i < kStreams; ++i) {
    clients.push_back(std::make_unique<RawClient>(server_->port()));
    Json body = Completion(true);
    body["prompt"] = std::string(static_cast<size_t>(1 + i % 100), 'p');
    clients.back()->Send(MakeRequest("POST", "/v1/completions", body.dump()));
  }
  for (int i = 0; i < kStreams; ++i) {
    std::string text;
    for (const Json& event : Events(clients[static_cast<size_t>(i)]->ReadResponse().body)) {
      text += event["choices"][0]["text"].get<std::string>();
    }
    EXPECT_EQ(text, "answer " + std::to_string(1 + i % 100));
  }
}

TEST_F(RouterTest, DrainingRefusesNewRequests) {
  StartRouter([](const v1::RequestSpec&) { return Says("x"); });
  api_->BeginDrain();
  EXPECT_EQ(Post("/v1/completions", Completion()).status, 503);
}

// As RunRouter does on SIGTERM: what is there ends well, and its connection then, so that the
// client's next request goes to another router.
TEST_F(RouterTest, ADrainingRouterFinishesItsStreamsAndClosesTheirConnections) {
  std::promise<void> planned, go;
  StartRouter([&planned, gate = go.get_future().share()](const v1::RequestSpec&) {
    planned.set_value();
    gate.wait();
    return Says("abc");
  });
  RawClient client(server_->port());
  client.Send(MakeRequest("POST", "/v1/completions", Completion(true).dump()));
  planned.get_future().wait();
  api_->BeginDrain();
  server_->BeginDrain();
  EXPECT_EQ(Post("/v1/completions", Completion()).status, 503);
  go.set_value();
  const http::Response response = client.ReadResponse();
  EXPECT_EQ(response.status, 200);
  EXPECT_EQ(http::FindHeader(response.headers, "Connection"), "close");
  std::string text;
  for (const Json& event : Events(response.body)) {
    for (const Json& choice : event["choices"]) text += choice["text"].get<std::string>();
  }
  EXPECT_EQ(text, "abc");
  EXPECT_TRUE(client.AtEnd());
}

// As vLLM counts: the choices of a request, however it ends.
TEST_F(RouterTest, EndsAreCountedByChoice) {
  StartRouter([](const v1::RequestSpec& spec) {
    if (PromptOf(spec).size() == 2) return Held("a");  // nothing ends before the client leaves
    Script script = Says("a");
    if (PromptOf(spec).size() == 3) {
      script.reason = v1::FINISH_REASON_ERROR;
      script.failure = absl::InternalError("broken");
    }
    return script;
  });
  const auto ask = [](const char* prompt, int n) {
    Json body = Completion(true);
    body["prompt"] = prompt;
    body["n"] = n;
    return body;
  };
  {
    RawClient client(server_->port());
    client.Send(MakeRequest("POST", "/v1/completions", ask("pp", 3).dump()));
    EXPECT_EQ(client.ReadHead().status, 200);
    while (cluster_->attached() < 3) std::this_thread::yield();
  }
  EXPECT_TRUE(cluster_->AwaitEnded(3, 3));
  Post("/v1/completions", ask("ppp", 4));
  Post("/v1/completions", ask("p", 2));
  const auto count = [](const std::string& text, const char* reason) {
    const std::string series =
        absl::StrCat("vllm:request_success_total{engine=\"0\",finished_reason=\"", reason,
                     "\",model_name=\"m\"} ");
    const size_t at = text.find(series);
    return at == std::string::npos ? -1 : std::stoi(text.substr(at + series.size()));
  };
  const std::string text = metrics_.Render();
  EXPECT_EQ(count(text, "abort"), 3) << text;
  EXPECT_EQ(count(text, "error"), 4) << text;
  EXPECT_EQ(count(text, "length"), 2) << text;
}

int64_t CountOf(const std::string& text, const std::string& series) {
  const size_t at = text.find(series + " ");
  return at == std::string::npos ? -1 : std::stoll(text.substr(at + series.size() + 1));
}

std::string EndedSeries(const char* reason) {
  return absl::StrCat("vllm:request_success_total{engine=\"0\",finished_reason=\"", reason,
                      "\",model_name=\"m\"}");
}

std::string AnswersSeries(const char* path, int status) {
  return absl::StrCat("skein_router_answers_total{path=\"", path, "\",status=\"", status, "\"}");
}

// An objective of errors counts what the cluster did wrong, not what clients or their number did.
TEST_F(RouterTest, OnlyFaultsOfTheClusterAreErrors) {
  scheduler::RouterConfig core;
  core.max_streams = 1;
  core.max_queued = 0;
  StartRouter(
      [](const v1::RequestSpec& spec) {
        Script script = PromptOf(spec).size() == 1 ? Held("a") : Says("a");
        if (PromptOf(spec).size() == 2) script.plan = absl::InvalidArgumentError("it never fits");
        if (PromptOf(spec).size() == 3) script.plan = absl::UnavailableError("no instance");
        return script;
      },
      core);
  const auto ask = [](size_t prompt) {
    Json body = Completion();
    body["prompt"] = std::string(prompt, 'p');
    return body;
  };
  EXPECT_EQ(Post("/v1/completions", ask(2)).status, 400);
  EXPECT_EQ(CountOf(metrics_.Render(), EndedSeries("error")), 0);
  EXPECT_EQ(Post("/v1/completions", ask(3)).status, 503);
  EXPECT_EQ(CountOf(metrics_.Render(), EndedSeries("error")), 1);
  RawClient client(server_->port());
  Json streamed = ask(1);
  streamed["stream"] = true;
  client.Send(MakeRequest("POST", "/v1/completions", streamed.dump()));
  EXPECT_EQ(client.ReadHead().status, 200);
  EXPECT_EQ(Post("/v1/completions", ask(1)).status, 429);
  EXPECT_EQ(CountOf(metrics_.Render(), EndedSeries("error")), 1);
  server_->Stop(std::chrono::milliseconds(0));  // cuts the stream
  shell_->loop().RunAndWait([] {});             // after what the server's stop posted
  const std::string text = metrics_.Render();
  EXPECT_EQ(CountOf(text, EndedSeries("error")), 2);
  EXPECT_EQ(CountOf(text, EndedSeries("abort")), 0);
  for (const auto& [status, count] : std::map<int, int>{{400, 1}, {429, 1}, {503, 2}, {499, 0}}) {
    EXPECT_EQ(CountOf(text, AnswersSeries("/v1/completions", status)), count) << status;
  }
}

// So that the first refusal is a step of a series, not its beginning.
TEST_F(RouterTest, AnswersThatAreAlertedOnAreThereFromTheStart) {
  StartRouter([](const v1::RequestSpec&) { return Says("a"); });
  const std::string text = metrics_.Render();
  for (const char* path : {"/v1/completions", "/v1/chat/completions", "/v1/responses"}) {
    for (const int status : {200, 400, 429, 499, 500, 503, 504}) {
      EXPECT_EQ(CountOf(text, AnswersSeries(path, status)), 0) << path << " " << status;
    }
  }
}

// Whoever asks for metrics must not wait for, or hold up, the loop that every token passes.
TEST_F(RouterTest, TheCountsAreThereWhileTheLoopIsBusy) {
  StartRouter([](const v1::RequestSpec&) { return Held("a"); });
  RawClient client(server_->port());
  client.Send(MakeRequest("POST", "/v1/completions", Completion(true).dump()));
  EXPECT_EQ(client.ReadHead().status, 200);
  std::promise<void> busy, end;
  ASSERT_TRUE(shell_->loop().TryPost([&busy, until = end.get_future().share()] {
    busy.set_value();
    until.wait();
  }));
  busy.get_future().wait();
  const scheduler::RouterSnapshot snapshot = shell_->Snapshot();
  EXPECT_EQ(snapshot.streaming, 1);
  EXPECT_EQ(snapshot.models.at("m").streaming, 1);
  EXPECT_EQ(snapshot.accepted, 1u);
  end.set_value();
}

// The token that ends an answer was generated as the others were, as usage says.
TEST_F(RouterTest, StopTokensAreCountedOnceAndEverywhere) {
  StartRouter([](const v1::RequestSpec& spec) {
    Script script = Says(PromptOf(spec).size() == 1 ? "abc" : "");
    script.reason = v1::FINISH_REASON_STOP;
    script.stop_token = kEos;
    return script;
  });
  EXPECT_EQ(Ask("/v1/completions", Completion())["usage"]["completion_tokens"], 4);
  Json at_once = Completion();
  at_once["prompt"] = "pp";
  EXPECT_EQ(Ask("/v1/completions", at_once)["usage"]["completion_tokens"], 1);
  const std::string text = metrics_.Render();
  for (const char* line :
       {"vllm:generation_tokens_total{engine=\"0\",model_name=\"m\"} 5",
        "vllm:request_generation_tokens_sum{engine=\"0\",model_name=\"m\"} 5",
        "vllm:time_to_first_token_seconds_count{engine=\"0\",model_name=\"m\"} 2",
        "vllm:inter_token_latency_seconds_count{engine=\"0\",model_name=\"m\"} 3"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
  }
}

TEST_F(RouterTest, MetricsCountWhatHappened) {
  StartRouter([](const v1::RequestSpec&) { return Says("abc"); });
  Ask("/v1/completions", Completion());
  const std::string text = metrics_.Render();
  for (const char* line :
       {"vllm:prompt_tokens_total{engine=\"0\",model_name=\"m\"} 1",
        "vllm:generation_tokens_total{engine=\"0\",model_name=\"m\"} 3",
        "vllm:request_success_total{engine=\"0\",finished_reason=\"length\",model_name=\"m\"} 1",
        "vllm:request_success_total{engine=\"0\",finished_reason=\"abort\",model_name=\"m\"} 0",
        "vllm:time_to_first_token_seconds_count{engine=\"0\",model_name=\"m\"} 1",
        "vllm:inter_token_latency_seconds_count{engine=\"0\",model_name=\"m\"} 2",
        "vllm:e2e_request_latency_seconds_count{engine=\"0\",model_name=\"m\"} 1",
        "vllm:request_prompt_tokens_sum{engine=\"0\",model_name=\"m\"} 1",
        "vllm:request_generation_tokens_sum{engine=\"0\",model_name=\"m\"} 3",
        "vllm:request_max_num_generation_tokens_sum{engine=\"0\",model_name=\"m\"} 3",
        "vllm:request_params_n_sum{engine=\"0\",model_name=\"m\"} 1",
        // What FakeCluster's instances say that they measured.
        "vllm:request_queue_time_seconds_count{engine=\"0\",model_name=\"m\"} 1",
        "vllm:request_prefill_time_seconds_sum{engine=\"0\",model_name=\"m\"} 0.25\n",
        "skein_request_handoff_time_seconds_sum{model_name=\"m\"} 0.125\n",
        "skein_request_plan_time_seconds_sum{model_name=\"m\"} 0.5\n"}) {
    EXPECT_NE(text.find(line), std::string::npos) << line << "\n" << text;
  }
}

}  // namespace
}  // namespace skein::services::testing
