// The part of the control channel's thread that serves what the ranks do over the channel itself:
// texts that come to all, and the end of the run.
#include <algorithm>

#include "comm/control_thread.h"

namespace meshtrain {
namespace {

// Calls send(part, whether it is the last) for the pieces of a text that go in one frame each.
template <class Send>
void in_parts(std::string_view text, const Send& send) {
  do {
    const std::string_view part = text.substr(0, kMostPartBytes);
    text.remove_prefix(part.size());
    send(part, static_cast<uint8_t>(text.empty()));
  } while (!text.empty());
}

}  // namespace

std::vector<Waiting> ControlThread::waiting() const {
  std::vector<Waiting> list;
  for (const auto& [key, gather] : gathers_) {
    Waiting wait = {fmt::format("`{}`", key), now_ - gather.since, gather.limit, {}};
    for (const auto& texts : gather.texts) {
      wait.came.push_back(!texts.empty());
    }
    list.push_back(std::move(wait));
  }
  if (first_done_ > 0) {
    list.push_back({"the end of the run", now_ - first_done_, options_.collective_seconds, done_});
  }
  return list;
}

void ControlThread::start_gather(const ControlDesk::GatherRequest& request) {
  if (is_first()) {
    add_text(0, request);
    return;
  }
  in_parts(request.text, [&](std::string_view part, uint8_t is_last) {
    link(0).send(FrameWriter(FrameKind::kGather)
                     .put(std::string_view(request.key))
                     .put(request.limit)
                     .put(static_cast<uint8_t>(request.to_first))
                     .put(is_last)
                     .put(part)
                     .done());
  });
}

void ControlThread::add_text(int rank, ControlDesk::GatherRequest given) {
  const std::string& key = given.key;
  Gather& gather = gathers_[key];
  if (gather.texts.empty()) {
    gather.texts.resize(views_.size());
    gather.since = now_;
  }
  gather.limit = std::max(gather.limit, given.limit);
  gather.to_first = given.to_first;
  gather.texts[static_cast<size_t>(rank)].push_back(std::move(given.text));
  const auto is_empty = [](const auto& texts) { return texts.empty(); };
  if (std::any_of(gather.texts.begin(), gather.texts.end(), is_empty)) {
    return;
  }
  std::vector<std::string> all;
  for (auto& texts : gather.texts) {
    all.push_back(std::move(texts.front()));
    texts.pop_front();
  }
  gather.since = now_;
  const bool to_first = gather.to_first;
  if (std::all_of(gather.texts.begin(), gather.texts.end(), is_empty)) {
    gathers_.erase(key);
  }
  for (int from = 0; from < size(); ++from) {
    if (to_first && from > 0 && from < size() - 1) {
      continue;  // the last one's frame says that it is complete
    }
    const std::string_view text =
        to_first && from > 0 ? std::string_view() : all[static_cast<size_t>(from)];
    in_parts(text, [&](std::string_view part, uint8_t is_last) {
      send_to_all(FrameWriter(FrameKind::kGathered)
                      .put(std::string_view(key))
                      .put(static_cast<int32_t>(from))
                      .put(is_last)
                      .put(part)
                      .done());
    });
  }
  deliver(key, std::move(all));
}

void ControlThread::deliver(const std::string& key, std::vector<std::string> texts) {
  {
    const std::lock_guard lock(desk_.mutex);
    desk_.gathered[key].push_back(std::move(texts));
  }
  desk_.changed.notify_all();
}

void ControlThread::set_done(int rank) {
  if (!is_first()) {
    link(0).send(FrameWriter(FrameKind::kDone).done());
    return;
  }
  done_[static_cast<size_t>(rank)] = true;
  first_done_ = first_done_ > 0 ? first_done_ : now_;
  if (std::find(done_.begin(), done_.end(), false) != done_.end()) {
    return;
  }
  send_to_all(FrameWriter(FrameKind::kAllDone).done());
  for (Link& link : links_) {  // before this process may end
    link.flush();
  }
  set_finished();
}

void ControlThread::set_finished() {
  finished_ = true;
  finished_at_ = now_;
  {
    const std::lock_guard lock(desk_.mutex);
    desk_.finished = true;
  }
  desk_.changed.notify_all();
}

}  // namespace meshtrain
