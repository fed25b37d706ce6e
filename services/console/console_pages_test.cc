#include "services/console/console_pages.h"

#include <functional>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "services/http/message.h"

namespace skein::services {
namespace {

using Json = nlohmann::json;

// A page's connection, which takes no more than one event that it has not read.
class Reader : public http::Responder {
 public:
  void Send(http::Response) override { ++ended_; }
  void StartStream(http::Response head) override { head_ = std::move(head); }
  bool Write(std::string piece) override {
    EXPECT_EQ(unread_, 0U) << "a page that has not read gets nothing";
    Take(piece);
    unread_ = slow_ ? piece.size() : 0;
    return unread_ == 0;
  }
  void Finish() override { ++ended_; }
  void Abort() override { ++ended_; }
  void Watch(std::function<void(http::Gone)> gone, std::function<void()> drained) override {
    gone_ = std::move(gone);
    drained_ = std::move(drained);
  }

  void SetSlow(bool slow) { slow_ = slow; }
  void Read() {
    if (std::exchange(unread_, 0) > 0) drained_();
  }
  void Leave() { gone_(http::Gone::kClient); }

  const Json& state() const { return state_; }
  int snapshots() const { return snapshots_; }
  int patches() const { return patches_; }
  int ended() const { return ended_; }
  const http::Response& head() const { return head_; }

 private:
  void Take(const std::string& piece) {
    const size_t line = piece.find('\n');
    const std::string kind = piece.substr(7, line - 7);  // after "event: "
    ASSERT_EQ(piece.substr(line + 1, 6), "data: ");
    ASSERT_EQ(piece.substr(piece.size() - 2), "\n\n");
    const Json message = Json::parse(piece.substr(line + 7));
    if (kind == "state") {
      ++snapshots_;
      state_ = message["state"];
    } else {
      ASSERT_EQ(kind, "patch");
      ++patches_;
      ASSERT_GT(snapshots_, 0) << "a patch of nothing";
      state_.merge_patch(message["patch"]);
    }
  }

  bool slow_ = false;
  size_t unread_ = 0;
  Json state_;
  int snapshots_ = 0, patches_ = 0, ended_ = 0;
  http::Response head_;
  std::function<void(http::Gone)> gone_;
  std::function<void()> drained_;
};

TEST(ConsolePages, AreSentOneSnapshotAndThenWhatChanges) {
  ConsolePages pages;
  auto reader = std::make_shared<Reader>();
  ASSERT_TRUE(pages.Open(reader));
  EXPECT_EQ(reader->head().content_type, "text/event-stream; charset=utf-8");
  for (int i = 0; i < 5; ++i) pages.Publish({{"a", {{"n", i}}}}, 100 + i);
  EXPECT_EQ(reader->snapshots(), 1);
  EXPECT_EQ(reader->patches(), 4);
  EXPECT_EQ(reader->state(), Json::parse(R"({"a":{"n":4}})"));
}

TEST(ConsolePages, AreBounded) {
  ConsolePages pages;
  std::vector<std::shared_ptr<Reader>> readers;
  readers.reserve(ConsolePages::kPagesMax);
  for (size_t i = 0; i < ConsolePages::kPagesMax; ++i) {
    readers.push_back(std::make_shared<Reader>());
    ASSERT_TRUE(pages.Open(readers.back()));
  }
  EXPECT_FALSE(pages.Open(std::make_shared<Reader>()));
  readers[3]->Leave();
  EXPECT_EQ(pages.Count(), ConsolePages::kPagesMax - 1);
  EXPECT_TRUE(pages.Open(std::make_shared<Reader>()));
  pages.Close();
  EXPECT_EQ(readers[0]->ended(), 1);
  EXPECT_FALSE(pages.Open(std::make_shared<Reader>()));
}

// Whenever a page has read all that it was sent, the next call gives it the state, whatever it
// missed.
class Histories : public ::testing::TestWithParam<int> {};

TEST_P(Histories, APageThatReadsHasTheState) {
  std::mt19937 random(static_cast<unsigned>(GetParam()));
  const auto below = [&random](int n) {
    return static_cast<int>(random() % static_cast<unsigned>(n));
  };
  ConsolePages pages;
  std::vector<std::shared_ptr<Reader>> readers;
  Json state = Json::object();
  for (int step = 0; step < 200; ++step) {
    if (readers.size() < 6 && below(10) == 0) {
      readers.push_back(std::make_shared<Reader>());
      ASSERT_TRUE(pages.Open(readers.back()));
    }
    for (const auto& reader : readers) {
      if (below(3) == 0) reader->Read();
      reader->SetSlow(below(2) == 0);
    }
    const std::string key = "k" + std::to_string(below(8));
    if (below(4) == 0) {
      state.erase(key);
    } else {
      state[key] = {{"n", below(5)}};
    }
    pages.Publish(state, step);
  }
  for (const auto& reader : readers) {
    reader->Read();
    reader->SetSlow(false);
  }
  pages.Publish(state, 200);
  for (const auto& reader : readers) EXPECT_EQ(reader->state(), state);
}

INSTANTIATE_TEST_SUITE_P(Seeds, Histories, ::testing::Range(0, 30));

}  // namespace
}  // namespace skein::services
