// Callbacks: Keras 3 callbacks. Paths are relative to the run's folder.
#include "config/catalogue_args.h"
#include "config/config.h"

namespace meshtrain {
namespace {

Spec monitor() {
  return text("monitor", "val_loss", "log that is watched");
}
Spec mode() {
  return choice("mode", words_of<MonitorMode>(), "auto", "which values of it are better");
}
Spec verbose() {
  return integer("verbose", "0", "1 prints what it does").least(0).most(2);
}
Spec min_delta(const char* value) {
  return number("min_delta", value, "a smaller change is no improvement");
}

ClassSpec checkpoint() {
  return make_class(
      "ModelCheckpoint", "saves the model, or the whole state of training",
      {text("filepath", "",
            "where to, by its end: .keras, .weights.h5, .safetensors, or a folder of its own for "
            "everything; {epoch}, {batch}, {step} and logs are filled in")
           .required(),
       monitor(), verbose(), boolean("save_best_only", "false", "only when it is the best so far"),
       boolean("save_weights_only", "false", "weights alone; filepath must say so too"), mode(),
       text("save_freq", "epoch", "epoch, 200 (batches), 2 epochs or 30 min"),
       number("initial_value_threshold", "null", "the best value before there is one"),
       integer("keep", "null", "how many of its files stay, the newest; all when null").least(1),
       boolean("restore", "false",
               "begin from the file of that name with the largest epoch, if there is one")});
}

}  // namespace

std::vector<ClassSpec> callback_classes() {
  return {
      checkpoint(),
      make_class(
          "BackupAndRestore", "the same command again goes on where this one was interrupted",
          {text("backup_dir", "null", "folder that leads to the interrupted run"),
           text("save_freq", "epoch", "epoch, 200 (batches), 2 epochs, 30 min or false"),
           boolean("double_checkpoint", "false", "keep two; there are always two at least"),
           boolean("delete_checkpoint", "true", "delete the checkpoints of a run that finished")}),
      make_class("EarlyStopping", "stops when a log no longer improves",
                 {monitor(), min_delta("0.0"),
                  integer("patience", "0", "epochs without improvement before it stops").least(0),
                  verbose(), mode(), number("baseline", "null", "a value that counts as progress"),
                  boolean("restore_best_weights", "false", "the best epoch's weights at the end"),
                  integer("start_from_epoch", "0", "epochs that are not judged").least(0)}),
      make_class("ReduceLROnPlateau", "lowers the learning rate when a log no longer improves",
                 {monitor(), number("factor", "0.1", "new rate / old rate").above(0).below(1),
                  integer("patience", "10", "epochs without improvement before that").least(0),
                  verbose(), mode(), min_delta("0.0001"),
                  integer("cooldown", "0", "epochs after it that are not judged").least(0),
                  number("min_lr", "0.0", "the rate stays at this or above").least(0)}),
      make_class("LearningRateScheduler", "sets the learning rate before each epoch",
                 {text("schedule", "",
                       "expression of `epoch` (from 0) and `lr`: =lr if epoch < 10 else lr * 0.9")
                      .required(),
                  verbose()}),
      make_class("CSVLogger", "a table of the epochs",
                 {text("filename", "", "the file").required(),
                  text("separator", ",", "one character between values"),
                  boolean("append", "false", "go on at the end of the file")}),
      make_class(
          "TensorBoard", "event files for TensorBoard: scalars, histograms, the graph",
          {text("log_dir", "logs", "folder for them, with train and validation in it"),
           integer("histogram_freq", "0", "epochs between histograms of the weights; 0: none")
               .least(0),
           boolean("write_graph", "true", "the layers as a graph, Keras' JSON and the config"),
           text("update_freq", "epoch", "epoch, batch or a number of batches between scalars"),
           boolean("write_steps_per_second", "false", "the speed too"),
           integer("profile_batch", "0", "0: profiles are not written").least(0).most(0)}),
      make_class("TerminateOnNaN", "says that the loss is not finite; training stops in any case",
                 {boolean("raise_error", "false", "as an error, without Keras' line")}),
      make_class(
          "SwapEMAWeights", "evaluates with the averages of the weights",
          {boolean("swap_on_epoch", "false", "and has them between epochs, for ModelCheckpoint")}),
  };
}

}  // namespace meshtrain
